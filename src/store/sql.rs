//! Every statement that touches a task, in the order of a task's life (DESIGN section 2). Each change of `status` is
//! ONE conditional UPDATE whose row count decides; nothing else in the program writes `status`.
//!
//! Time is the database's: `clock_timestamp()`, never `now()` (the start of the transaction) and never our own clock.
//!
//! Statements that search for unfinished tasks say `status IS DISTINCT FROM 'SUCCEEDED'`, which gives them the index
//! go_tasks_open; those that name their tasks do not, and go by the primary key (see `schema.sql`).

/// submit: – → QUEUED. The ids of those stored, in the order given.
pub const SUBMIT: &str = "
    WITH new AS MATERIALIZED (
        SELECT 'task[' || nextval('go_task_numbers') || ']' AS id, text, place
          FROM unnest($1::text[]) WITH ORDINALITY AS new (text, place)
    ), stored AS (
        INSERT INTO go_tasks (id, text, status, words, bytes, runes)
        SELECT id, text, 'QUEUED', 0, 0, 0 FROM new
        RETURNING id
    )
    SELECT id FROM new JOIN stored USING (id) ORDER BY place";

/// The same where some have an idempotency key (NULL: none). NULL for one whose key is taken, also by one before it in the
/// same statement. Inserting in the order of keys keeps two batches from waiting for each other in a circle. On its own
/// because ON CONFLICT is not free: each row is inserted on trial, and then confirmed.
pub const SUBMIT_ONCE: &str = "
    WITH new AS MATERIALIZED (
        SELECT 'task[' || nextval('go_task_numbers') || ']' AS id, text, key, place
          FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS new (text, key, place)
    ), stored AS (
        INSERT INTO go_tasks (id, text, status, words, bytes, runes, idempotency_key)
        SELECT id, text, 'QUEUED', 0, 0, 0, key FROM new ORDER BY key, place
            ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING id
    )
    SELECT stored.id FROM new LEFT JOIN stored USING (id) ORDER BY place";

/// The tasks that have these idempotency keys.
pub const FIND_KEYS: &str = "
    SELECT idempotency_key, id FROM go_tasks WHERE idempotency_key = ANY ($1::text[])";

/// Whether a task's text is this one.
pub const HAS_TEXT: &str = "
    SELECT text = $2 FROM go_tasks WHERE id = $1";

/// claim: QUEUED → RUNNING by owner `$2` for `$3` milliseconds (NULL: no expiry); take over: the same for a task whose owner
/// let its lease expire, unless `$4` owners died of it already. Rows come back for those won. The primary key is searched in
/// the order of ids, so two batches never wait for each other in a circle; a row that another locked is judged anew.
pub const CLAIM: &str = "
    UPDATE go_tasks AS task
       SET status = 'RUNNING',
           lease_owner = $2,
           lease_epoch = task.lease_epoch + 1,
           lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
           started_at = clock_timestamp()
     WHERE id = ANY ($1::text[])
       AND (status = 'QUEUED'
            OR ($3::bigint IS NOT NULL
                AND status = 'RUNNING'
                AND lease_until < clock_timestamp()
                AND NOT cancel_requested
                AND lease_epoch < $4))
    RETURNING id, text, lease_epoch";

/// The text of a task that a claim without an answer made ours: RUNNING, by owner `$2`, under a lease that holds.
pub const CLAIMED: &str = "
    SELECT text, lease_epoch
      FROM go_tasks
     WHERE id = $1
       AND status = 'RUNNING'
       AND lease_owner = $2
       AND (lease_until IS NULL OR lease_until >= clock_timestamp())";

/// effect: owner `$2` under epoch `$3` records what it did for task `$1`, in a transaction of its own, if its lease holds. No
/// row: lease lost. `new`: nobody had recorded it before.
pub const WRITE_EFFECT: &str = "
    WITH mine AS (
        SELECT id FROM go_tasks
         WHERE id = $1
           AND status = 'RUNNING'
           AND lease_owner = $2
           AND lease_epoch = $3
           AND lease_until >= clock_timestamp()
           FOR UPDATE
    ), written AS (
        INSERT INTO go_task_effects (task_id, words, lease_owner, lease_epoch)
        SELECT id, $4, $2, $3 FROM mine
            ON CONFLICT (task_id) DO NOTHING
        RETURNING task_id
    )
    SELECT EXISTS (SELECT FROM written) AS new FROM mine";

/// succeed, fail, stop at cancel: RUNNING → terminal, by the owner `$1` of the epoch, while its lease holds. A cancel that
/// was requested decides here, in the UPDATE itself, whenever it came: it cannot be lost between a look and a write. With
/// `$9` a success records its effect in the same transaction.
pub const FINISH: &str = "
    WITH ended AS (
        UPDATE go_tasks AS task
           SET status = CASE WHEN task.cancel_requested THEN 'CANCELED' ELSE done.status END,
               words = CASE WHEN task.cancel_requested THEN 0 ELSE done.words END,
               bytes = CASE WHEN task.cancel_requested THEN 0 ELSE done.bytes END,
               runes = CASE WHEN task.cancel_requested THEN 0 ELSE done.runes END,
               failure_reason = CASE WHEN task.cancel_requested THEN NULL ELSE done.reason END,
               finished_at = clock_timestamp()
          FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[])
               AS done (id, epoch, status, words, bytes, runes, reason)
         WHERE task.id = done.id
           AND task.status = 'RUNNING'
           AND task.lease_owner = $1
           AND task.lease_epoch = done.epoch
           AND (task.lease_until IS NULL OR task.lease_until >= clock_timestamp())
        RETURNING task.id, task.status, task.words, task.lease_epoch
    ), effect AS (
        INSERT INTO go_task_effects (task_id, words, lease_owner, lease_epoch)
        SELECT id, words, $1, lease_epoch FROM ended WHERE $9 AND status = 'SUCCEEDED'
            ON CONFLICT (task_id) DO NOTHING
    )
    SELECT id, status FROM ended";

/// renew: the leases of owner `$1` that still hold last `$4` milliseconds from now on. A row that somebody has locked is
/// passed over, so that it cannot cost us the others: HELD tells whether it is still ours.
pub const RENEW: &str = "
    UPDATE go_tasks AS task
       SET lease_until = clock_timestamp() + $4::bigint * interval '1 millisecond'
      FROM (SELECT go_tasks.id
              FROM go_tasks JOIN unnest($2::text[], $3::bigint[]) AS held (id, epoch) ON go_tasks.id = held.id
             WHERE status = 'RUNNING'
               AND lease_owner = $1
               AND lease_epoch = held.epoch
               AND lease_until >= clock_timestamp()
               FOR UPDATE OF go_tasks SKIP LOCKED) AS ours
     WHERE task.id = ours.id
    RETURNING task.id, task.cancel_requested";

/// Which of these are not taken from owner `$1`: RUNNING under a lease that holds, or ended under our epoch.
pub const HELD: &str = "
    SELECT go_tasks.id, cancel_requested
      FROM go_tasks JOIN unnest($2::text[], $3::bigint[]) AS held (id, epoch) ON go_tasks.id = held.id
     WHERE lease_owner = $1
       AND lease_epoch = held.epoch
       AND (status <> 'RUNNING' OR lease_until >= clock_timestamp())";

/// Those of `$1` that were asked to stop.
pub const CANCEL_REQUESTED: &str = "
    SELECT id FROM go_tasks WHERE id = ANY ($1::text[]) AND status = 'RUNNING' AND cancel_requested";

/// Tasks whose owner let its lease expire and that another may take over: longest expired first.
pub const EXPIRED: &str = "
    SELECT id
      FROM go_tasks
     WHERE status = 'RUNNING'
       AND status IS DISTINCT FROM 'SUCCEEDED'
       AND go_task_number(id) IS NOT NULL
       AND lease_until < clock_timestamp()
       AND NOT cancel_requested
       AND lease_epoch < $1
     ORDER BY lease_until
     LIMIT $2";

/// give up: RUNNING → FAILED where `$1` owners let the lease expire; cancelled owner died: RUNNING → CANCELED. No owner ever
/// runs these again.
pub const SETTLE_EXPIRED: &str = "
    UPDATE go_tasks
       SET status = CASE WHEN cancel_requested THEN 'CANCELED' ELSE 'FAILED' END,
           words = 0, bytes = 0, runes = 0,
           failure_reason = CASE WHEN NOT cancel_requested
                                 THEN lease_epoch || ' owners died or lost their lease before completion' END,
           finished_at = clock_timestamp()
     WHERE id IN (SELECT id FROM go_tasks
                   WHERE status = 'RUNNING'
                     AND status IS DISTINCT FROM 'SUCCEEDED'
                     AND go_task_number(id) IS NOT NULL
                     AND lease_until < clock_timestamp()
                     AND (cancel_requested OR lease_epoch >= $1)
                     FOR UPDATE SKIP LOCKED)
    RETURNING id, status";

/// cancel queued: QUEUED → CANCELED; cancel running: RUNNING stays, cancel_requested = true. A client may name any row:
/// those of other programs are left alone.
pub const CANCEL: &str = "
    UPDATE go_tasks
       SET status = CASE WHEN status = 'QUEUED' THEN 'CANCELED' ELSE status END,
           words = 0, bytes = 0, runes = 0,
           cancel_requested = cancel_requested OR status = 'RUNNING',
           finished_at = CASE WHEN status = 'QUEUED' THEN clock_timestamp() END
     WHERE id = $1
       AND status IN ('QUEUED', 'RUNNING')
       AND go_task_number(id) IS NOT NULL
    RETURNING status";

/// claim refused: QUEUED → FAILED. A row that is anything else stays as it is.
pub const FAIL_UNCLAIMED: &str = "
    UPDATE go_tasks
       SET status = 'FAILED', words = 0, bytes = 0, runes = 0, failure_reason = $2, finished_at = clock_timestamp()
     WHERE id = $1 AND status = 'QUEUED'";

/// recover: RUNNING → FAILED, where no lease says when an owner is given up. Rows of other programs are left alone.
pub const RECOVER: &str = "
    UPDATE go_tasks
       SET status = 'FAILED', words = 0, bytes = 0, runes = 0, failure_reason = $1, finished_at = clock_timestamp()
     WHERE status = 'RUNNING'
       AND status IS DISTINCT FROM 'SUCCEEDED'
       AND lease_until IS NULL
       AND go_task_number(id) IS NOT NULL";

/// recover late: the same for claims of other owners than `$2` that were committed after recovery had looked. Only in the
/// session that holds the instance lock: it proves that those owners are dead. It waits for no row; the next time will do.
pub const RECOVER_LATE: &str = "
    UPDATE go_tasks
       SET status = 'FAILED', words = 0, bytes = 0, runes = 0, failure_reason = $1, finished_at = clock_timestamp()
     WHERE id IN (SELECT id FROM go_tasks
                   WHERE status = 'RUNNING'
                     AND status IS DISTINCT FROM 'SUCCEEDED'
                     AND lease_until IS NULL
                     AND lease_owner <> $2
                     AND go_task_number(id) IS NOT NULL
                     FOR UPDATE SKIP LOCKED)";

/// The backlog: tasks that wait for a worker.
pub const COUNT_QUEUED: &str = "
    SELECT count(*)
      FROM go_tasks
     WHERE status = 'QUEUED'
       AND status IS DISTINCT FROM 'SUCCEEDED'
       AND go_task_number(id) >= 0";

/// The number after the largest existing one; 0 in an empty table.
pub const NUMBER_AFTER_LARGEST: &str = "
    SELECT coalesce(max(go_task_number(id)) + 1, 0) FROM go_tasks";

/// Makes `$1` the next number. Only for the one instance that holds the database.
pub const SET_NEXT_NUMBER: &str = "
    SELECT setval('go_task_numbers', $1, false)";

/// Keeps all others from taking numbers until the transaction ends: changing nothing, it locks the sequence as a change would.
pub const HOLD_NUMBERS: &str = "
    ALTER SEQUENCE go_task_numbers MINVALUE 0";

/// The next number, as far as the sequence knows.
pub const NEXT_NUMBER: &str = "
    SELECT last_value + is_called::int FROM go_task_numbers";

/// QUEUED tasks after number `$1`, oldest number first, at least `$3` milliseconds old: what nobody may be holding.
pub const QUEUED_AFTER: &str = "
    SELECT id
      FROM go_tasks
     WHERE status = 'QUEUED'
       AND status IS DISTINCT FROM 'SUCCEEDED'
       AND go_task_number(id) > $1
       AND created_at <= clock_timestamp() - $3::bigint * interval '1 millisecond'
     ORDER BY go_task_number(id)
     LIMIT $2";

/// What a client may know of tasks, and whose they are. Times as RFC 3339 in UTC, written by the database.
pub const LOOK_UP: &str = r#"
    SELECT id, status, words::bigint, bytes::bigint, runes::bigint, failure_reason, cancel_requested,
           lease_owner, lease_epoch,
           to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at,
           to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS started_at,
           to_char(finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS finished_at
      FROM go_tasks
     WHERE id = ANY ($1::text[])"#;

/// Takes the instance lock if it is free: a session lock, gone with its connection. The key is our name and the table's oid, so
/// that two schemas in one database do not meet. Says whether it was taken, by which session we ask, and who holds it.
pub const TRY_INSTANCE_LOCK: &str = "
    SELECT pg_try_advisory_lock(x'7461736b'::bigint << 32 | 'go_tasks'::regclass::oid::bigint),
           (SELECT 'pid ' || pid || ' since ' || backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),
           (SELECT 'pid ' || pid || ' since ' || backend_start
              FROM pg_locks JOIN pg_stat_activity USING (pid)
             WHERE locktype = 'advisory' AND granted
               AND classid = x'7461736b'::int::oid AND objid = 'go_tasks'::regclass AND objsubid = 1
               AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// Whether the server takes writes, and which of its sessions this is.
pub const PROVE: &str = "
    SELECT current_setting('transaction_read_only') = 'off',
           (SELECT 'pid ' || pid || ' since ' || backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())";
