-- pgbench: a hundred tasks stored by one statement.
INSERT INTO go_tasks (id, text, status, words, bytes, runes)
SELECT 'task[' || nextval('go_task_numbers') || ']', 'the quick brown fox jumps over the lazy dog', 'QUEUED', 0, 0, 0
  FROM generate_series(1, 100);
