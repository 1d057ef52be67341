-- The whole schema of taskstats. Applied at start by the program, inside one transaction; psql -f does the same.
-- Applying it again changes nothing. Applying it over an older go_tasks (id, text, status, words, bytes, runes)
-- upgrades the table in place and keeps its rows.
--
-- Never here: anything that changes a task. Rows change in src/store/sql.rs only.

CREATE TABLE IF NOT EXISTS go_tasks (
    id     text   PRIMARY KEY,             -- task[n]; any other id is another program's row and is left alone
    text   text   NOT NULL,
    status text   NOT NULL,                -- QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED
    words  bigint NOT NULL DEFAULT 0,
    bytes  bigint NOT NULL DEFAULT 0,
    runes  bigint NOT NULL DEFAULT 0
);

ALTER TABLE go_tasks
    ADD COLUMN IF NOT EXISTS failure_reason   text,
    ADD COLUMN IF NOT EXISTS cancel_requested boolean     NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS lease_owner      text,                               -- the process that claimed it last
    ADD COLUMN IF NOT EXISTS lease_epoch      bigint      NOT NULL DEFAULT 0,     -- grows with every claim: the fence
    ADD COLUMN IF NOT EXISTS lease_until      timestamptz,                        -- NULL: no expiry (single instance)
    ADD COLUMN IF NOT EXISTS idempotency_key  text,
    -- now() is evaluated once, so that adding the column rewrites no row; new rows get the default set below.
    ADD COLUMN IF NOT EXISTS created_at       timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN IF NOT EXISTS started_at       timestamptz,
    ADD COLUMN IF NOT EXISTS finished_at      timestamptz;

-- now() is the start of the transaction, not the present.
ALTER TABLE go_tasks ALTER COLUMN created_at SET DEFAULT clock_timestamp();

-- Every task has three versions, and each is cheaper to write, and to log ahead, where it fits beside the one before.
ALTER TABLE go_tasks SET (fillfactor = 60);

-- An older table may lack the primary key, and has no rules on its rows. NOT VALID: old rows are not judged, new ones are.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'go_tasks'::regclass AND contype = 'p') THEN
        ALTER TABLE go_tasks ADD PRIMARY KEY (id);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'go_tasks'::regclass AND conname = 'go_tasks_counters') THEN
        ALTER TABLE go_tasks ADD CONSTRAINT go_tasks_counters
            CHECK (status = 'SUCCEEDED' OR (words = 0 AND bytes = 0 AND runes = 0)) NOT VALID;
    END IF;
END $$;

-- The n of task[n]; NULL for every other id. At most 18 digits, so that n + 1 is a bigint too.
CREATE OR REPLACE FUNCTION go_task_number(id text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CAST(substring(id FROM '^task\[(0|[1-9][0-9]{0,17})\]$') AS bigint) $$;

-- The largest number, in one look, however many rows there are.
CREATE INDEX IF NOT EXISTS go_tasks_number ON go_tasks (go_task_number(id));

-- What is queued, running, failed or cancelled, in the order of numbers: recovery, the feeder and lists never meet the
-- finished rows, which are nearly all of the table. IS DISTINCT FROM, not <>: so only a statement that says the same can use
-- this index. Claims and ends, which name their rows, go by the primary key: here they would meet every dead version of
-- every task that was queued or running since the last vacuum.
CREATE INDEX IF NOT EXISTS go_tasks_open ON go_tasks (status, go_task_number(id)) WHERE status IS DISTINCT FROM 'SUCCEEDED';
DROP INDEX IF EXISTS go_tasks_unfinished; -- schema 1

CREATE UNIQUE INDEX IF NOT EXISTS go_tasks_idempotency_key ON go_tasks (idempotency_key)
    WHERE idempotency_key IS NOT NULL;

-- The number of the next task. Start-up moves it behind the largest number in the table.
CREATE SEQUENCE IF NOT EXISTS go_task_numbers MINVALUE 0 START 0 MAXVALUE 999999999999999999;

-- What a worker did outside the task's own row, at most once per task (chapter E08).
CREATE TABLE IF NOT EXISTS go_task_effects (
    task_id     text PRIMARY KEY,
    words       bigint      NOT NULL,
    lease_owner text,
    lease_epoch bigint      NOT NULL DEFAULT 0,
    written_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

ALTER TABLE go_task_effects
    ADD COLUMN IF NOT EXISTS lease_owner text,
    ADD COLUMN IF NOT EXISTS lease_epoch bigint      NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS written_at  timestamptz NOT NULL DEFAULT now();
ALTER TABLE go_task_effects ALTER COLUMN written_at SET DEFAULT clock_timestamp();

-- The program applies this file only where this mark differs: a start takes no lock that work would wait for.
COMMENT ON TABLE go_tasks IS 'taskstats schema 2';
