-- pgbench: one task stored.
INSERT INTO go_tasks (id, text, status, words, bytes, runes)
VALUES ('task[' || nextval('go_task_numbers') || ']', 'the quick brown fox jumps over the lazy dog', 'QUEUED', 0, 0, 0);
