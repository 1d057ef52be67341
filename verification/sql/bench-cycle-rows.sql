-- pgbench: the lives of so many tasks, each step of all in one statement and transaction.
WITH new AS (
    INSERT INTO go_tasks (id, text, status, words, bytes, runes)
    SELECT 'task[' || nextval('go_task_numbers') || ']', 'the quick brown fox jumps over the lazy dog', 'QUEUED', 0, 0, 0
      FROM generate_series(1, :rows)
    RETURNING id
) SELECT array_agg(id)::text AS tasks FROM new \gset
UPDATE go_tasks
   SET status = 'RUNNING', lease_owner = 'pgbench', lease_epoch = lease_epoch + 1, lease_until = NULL,
       started_at = clock_timestamp()
 WHERE id = ANY (:tasks::text[]) AND status = 'QUEUED'
RETURNING id, text;
UPDATE go_tasks
   SET status = 'SUCCEEDED', words = 9, bytes = 43, runes = 43, failure_reason = NULL, finished_at = clock_timestamp()
 WHERE id = ANY (:tasks::text[]) AND status = 'RUNNING' AND lease_owner = 'pgbench' AND lease_epoch = 1;
