# shellcheck shell=bash
# Row 7 of the leases: a plain service, workers with leases and a service with leases on one table. For lease.sh.

# From lib/lease.sh, which lease.sh sources first. (Sourced here too, it would keep shellcheck busy for minutes.)
# shellcheck disable=SC2034,SC2154

row_7() {
  begin_lease_row mixed
  export GATE=$scratch/mixed-gate GATED=$gated
  : >"$GATE"
  local leased leased_row plain plain_row
  lease_submit submit-leased 'Go one'
  leased=$task_id
  lease_run a A --crash before-effect
  await_expiry 7.1 "$leased"
  if sabotaged 7.unleased; then db sabotage "UPDATE go_tasks SET lease_until = NULL WHERE id = '$leased'"; fi
  db_row leased "$leased"
  leased_row=$answer
  recovery_leaves_leases_alone
  leases_leave_plain_rows_alone
  plain_goes_on
  balance 7.19
}

plain_serve() { taskstats=$repository/verification/lib/gated-serve.sh serve "$1" --workers 1 --queue 0; }

# Two starts of a plain service: beside a task whose lease is over, and again when it was killed in the middle of its own.
recovery_leaves_leases_alone() {
  plain_serve plain
  expect 7.2 'a plain start finds nothing to recover' 'failed=0 queued=0 next=1' "$(recovery_report)"
  post plain-dies 'plain work'
  plain=$task_id
  await 7.3 'it has a task of its own' status_is "$plain" RUNNING
  kill_service sigkill
  plain_serve plain-again
  expect 7.4 'the next plain start recovers its own task' 'failed=1 queued=0 next=2' "$(recovery_report)"
  db_task plain "$plain"
  expect 7.5 'which is FAILED with the reason' 'FAILED 0/0/0 process exited before worker completion' "$answer"
  db_row leased-after "$leased"
  expect 7.6 'no byte of the leased row has changed by all that' "$leased_row" "$answer"
}

# The plain service has a task in hand all the time, held at a gate.
leases_leave_plain_rows_alone() {
  post plain-holds 'plain work'
  plain=$task_id
  await 7.7 'the plain service has a task in hand' status_is "$plain" RUNNING
  if sabotaged 7.leased; then db sabotage "UPDATE go_tasks SET lease_until = clock_timestamp() WHERE id = '$plain'"; fi
  db plain-unleased "SELECT status, lease_epoch, lease_until IS NULL FROM go_tasks WHERE id = '$plain'"
  expect 7.8 'its row has no end of a lease' 'RUNNING|1|t' "$answer"
  db_row plain-before "$plain"
  plain_row=$answer
  lease_run b B "${unhurried[@]}"
  expect 7.9 'a worker takes the task whose lease is over' "0 $leased B 2 true SUCCEEDED 2" "$exit_code $(run_told)"
  lease_run c C
  expect 7.10 'the next one finds nothing to claim' 3 "$exit_code"
  serve_with_leases_beside
  db_row plain-after "$plain"
  expect 7.15 'no byte of the plain row has changed by all that' "$plain_row" "$answer"
}

# A service with leases may join: it has no instance lock.
serve_with_leases_beside() {
  local plain_pid=$service_pid plain_url=$service_url plain_log=$service_log
  # It must end with the row, too.
  started_pid[plain]=$plain_pid
  lease_submit submit-orphan 'Go one'
  lease_run dies A --crash before-effect
  expect 7.11 'another owner dies' 72 "$exit_code"
  serve leased-serve --lease 2s
  expect 7.12 'a service with leases starts beside the plain one and recovers nothing' failed=0 \
    "$(recovery_report | cut -d ' ' -f 1)"
  await 7.13 'it takes the task over and does it' status_is "$task_id" SUCCEEDED
  db_lease orphan "$task_id"
  expect 7.14 'under epoch 2, with one effect' 'SUCCEEDED|2|2|1' "$(cut -d '|' -f 1,3- <<<"$answer")"
  terminate leased-sigterm
  expect 7.16 'it ends with exit code 0' 0 "$exit_code"
  service_pid=$plain_pid service_url=$plain_url service_log=$plain_log
  unset 'started_pid[plain]'
}

plain_goes_on() {
  rm -f "$GATE"
  await 7.17 'the plain service ends its task' status_is "$plain" SUCCEEDED
  terminate plain-sigterm
  expect 7.18 'and itself with exit code 0' 0 "$exit_code"
}
