#!/usr/bin/env bash
# SIGKILL while one task is RUNNING and one is QUEUED, and an immediate restart: what was running is FAILED with a reason, what
# was queued is done, no number is given twice, and nobody ends a connection by hand. Each repeat has a database of its own.

set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib/evidence.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/evidence.sh"
# shellcheck source-path=SCRIPTDIR source=lib/experiment.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/experiment.sh"

# shellcheck disable=SC2034 # for lib/experiment.sh
{
  title='restart: SIGKILL with one task RUNNING and one QUEUED'
  rows=(9)
  faults=(
    '9.gate-missing  finishes are not held'
    '9.spared        the service is not killed'
    '9.locked        somebody locks the row of the running task'
    '9.swallowed     what recovery writes is lost'
    '9.unqueued      the queued task is lost'
    '9.numbered      a row with a larger number appears'
    '9.touched       a terminal row is changed between the recoveries'
  )
}

# From SIGKILL to the next ready line.
most_ms_to_restart=5000
# A start that hangs is not waited for as long as a first one on a slow machine.
# shellcheck disable=SC2034 # for lib/service.sh
ready_patience=15

abandoned='FAILED 0/0/0 process exited before worker completion'

row_9() {
  local number at_gate=0
  for ((number = 1; number <= repeats; number++)); do
    printf -v repeat '%02d' "$number"
    use_database "repeat_$repeat"
    killed_at_work
    started_again
    started_once_more
  done
  # Otherwise the restart would have had nothing in its way: no repeat would show that it clears itself away.
  expect_from 9.14 'repeats in which the dead process still had a statement at the gate' 1 "$repeats" "$at_gate"
}

# One RUNNING, one QUEUED, SIGKILL.
killed_at_work() {
  serve "$repeat-serve" --workers 1 --queue 1
  open_session
  shut_gate
  sabotaged 9.gate-missing || build_gate "$repeat-build-gate" SUCCEEDED
  post "$repeat-first" 'dies running'
  expect 9.1 'two texts are accepted' '202 task[0]' "$http_status $task_id"
  await 9.2 'the finish of the first stands at the gate' gate_is_reached
  post "$repeat-second" 'waits on'
  expect 9.1 'two texts are accepted' '202 task[1]' "$http_status $task_id"
  states "$repeat-before"
  expect 9.3 'one is RUNNING, one is QUEUED' $'task[0] RUNNING 0/0/0\ntask[1] QUEUED 0/0/0' "$answer"
  killed_since=$(milliseconds)
  if sabotaged 9.spared; then terminate_at_once; else kill_service "$repeat-sigkill"; fi
  expect 9.4 'the wait status is that of SIGKILL' 137 "$exit_code"
  if gate_is_reached; then ((at_gate += 1)); fi
  states "$repeat-after"
  expect 9.5 'the table does not know of it' $'task[0] RUNNING 0/0/0\ntask[1] QUEUED 0/0/0' "$answer"
}

# With the gate still shut: nobody helps the dead process's statement along.
started_again() {
  break_the_restart
  local ready=yes
  serve "$repeat-restart" --workers 1 --queue 1 || ready=no
  expect_from 9.6 'ready again after SIGKILL, ms' 0 "$most_ms_to_restart" $(($(milliseconds) - killed_since))
  [[ $ready == yes ]] || exit 1
  note "$repeat-recovery" "$(recovery_report)"
  expect 9.7 'recovery reports what it found' 'failed=1 queued=1 next=2' "$(recovery_report)"
  get "$repeat-first" 'task[0]'
  expect 9.8 'task[0]: FAILED with the reason, by HTTP' "$abandoned" "$(told)"
  open_gate
  sabotaged 9.gate-missing || remove_gate "$repeat-remove-gate"
  close_session
  await 9.9 'task[1] becomes SUCCEEDED' status_is 'task[1]' SUCCEEDED
  states "$repeat-recovered"
  expect 9.10 'and so does the table say' "task[0] $abandoned"$'\n''task[1] SUCCEEDED 2/8/8' "$answer"
}

# A second recovery finds nothing to do.
started_once_more() {
  local rows_before
  whole_table "$repeat-before-second-recovery"
  rows_before=$answer
  kill_service "$repeat-sigkill-idle"
  if sabotaged 9.touched; then db sabotage "UPDATE go_tasks SET finished_at = clock_timestamp() WHERE id = 'task[0]'"; fi
  serve "$repeat-second-restart" --workers 1 --queue 1
  expect 9.11 'the second recovery reports nothing' 'failed=0 queued=0 next=2' "$(recovery_report)"
  whole_table "$repeat-after-second-recovery"
  expect 9.12 'and changes nothing, in no column' "$rows_before" "$answer"
  post "$repeat-next" 'Go one'
  expect 9.13 'the next text is task[2]' '202 task[2]' "$http_status $task_id"
  await 9.15 'it becomes SUCCEEDED' status_is "$task_id" SUCCEEDED
  terminate "$repeat-sigterm"
  expect 9.16 'the service ends on SIGTERM with exit code 0' 0 "$exit_code"
}

break_the_restart() {
  case $sabotage in
    9.locked) ask "BEGIN; SELECT FROM go_tasks WHERE id = 'task[0]' FOR UPDATE" ;;
    9.swallowed) db_script sabotage swallow.sql status=FAILED ;;
    9.unqueued) db sabotage "DELETE FROM go_tasks WHERE id = 'task[1]'" ;;
    9.numbered) db sabotage "INSERT INTO go_tasks (id, text, status) VALUES ('task[7]', 'x', 'SUCCEEDED')" ;;
  esac
}

# SIGTERM, and SIGTERM again: the end of a process that was not killed.
terminate_at_once() {
  begin_step sabotage
  local pid=$service_pid
  service_pid=
  kill -TERM "$pid"
  wait_until "$patience" service_says draining
  kill -TERM "$pid"
  exit_code=0
  wait "$pid" || exit_code=$?
}

# states NAME: each task in one line.
states() {
  db "$1" "SELECT concat_ws(' ', id, status, words || '/' || bytes || '/' || runes, failure_reason)
             FROM go_tasks ORDER BY go_task_number(id)"
}

whole_table() { db "$1" 'SELECT to_json(task) FROM go_tasks AS task ORDER BY go_task_number(id)'; }

run_experiment restart 15 2 "$@"
