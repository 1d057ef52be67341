-- pgbench: one task's life without batches, three transactions: insert, claim, finish. The text is that of load.rs.
INSERT INTO go_tasks (id, text, status, words, bytes, runes)
VALUES ('task[' || nextval('go_task_numbers') || ']', 'the quick brown fox jumps over the lazy dog', 'QUEUED', 0, 0, 0)
RETURNING id AS task \gset
UPDATE go_tasks
   SET status = 'RUNNING', lease_owner = 'pgbench', lease_epoch = lease_epoch + 1, lease_until = NULL,
       started_at = clock_timestamp()
 WHERE id = :task AND status = 'QUEUED'
RETURNING text;
UPDATE go_tasks
   SET status = 'SUCCEEDED', words = 9, bytes = 43, runes = 43, failure_reason = NULL, finished_at = clock_timestamp()
 WHERE id = :task AND status = 'RUNNING' AND lease_owner = 'pgbench' AND lease_epoch = 1;
