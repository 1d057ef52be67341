-- pgbench: what GET shows of a task, by a random number below :rows.
\set number random(0, :rows - 1)
SELECT id, status, words, bytes, runes, failure_reason, cancel_requested, created_at, started_at, finished_at
  FROM go_tasks WHERE id = 'task[' || :number || ']';
