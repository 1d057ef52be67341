# shellcheck shell=bash
# Row 10 of the matrix: claims that PostgreSQL refuses. For matrix.sh.

# shellcheck source-path=SCRIPTDIR source=experiment.sh
source "$(dirname "${BASH_SOURCE[0]}")/experiment.sh"

unclaimable='FAILED 0/0/0 worker could not claim task'
# What a loaded machine may add to a pause, in ms.
scheduling_ms=1000

# ------------------------------------------------------------------ 10: the claim raises an SQL error

row_10() {
  local timeout=2s
  if sabotaged 10.unbounded; then timeout=4s; fi
  serve serve --workers 1 --queue 0 --db-timeout "$timeout"
  open_session
  refused_claim
  failing_write_is_retried
  cancel_ends_the_retries
  failing_write_is_bounded
  sigterm_ends_the_retries
  close_session
  end_service 10.25
}

refused_claim() {
  local id
  sabotaged 10.claim-allowed || refuse refuse-claims RUNNING
  post refused-claim 'Go one'
  id=$task_id
  await 10.1 'the task becomes FAILED' status_is "$id" FAILED
  get refused-claim "$id"
  expect 10.2 'HTTP tells why, and no counts' "$unclaimable" "$(told)"
  db_task refused-claim "$id"
  expect 10.3 'so does the table' "$unclaimable" "$answer"
  db_count never-claimed "id = '$id' AND lease_epoch = 0 AND lease_owner IS NULL AND started_at IS NULL"
  expect 10.4 'it was never claimed, so no analyser ever ran' 1 "$answer"
}

# The terminal write fails, too, and comes through later.
failing_write_is_retried() {
  local id
  refuse refuse-failing FAILED
  post retried 'Go one'
  id=$task_id
  await 10.5 'the write of FAILED is tried again and again' tries_are 10 refuses FAILED "$id"
  db_task retried "$id"
  expect 10.6 'the task is QUEUED meanwhile' 'QUEUED 0/0/0' "$answer"
  post no-slot 'no slot'
  expect 10.7 'and keeps its slot: 503' 503 "$http_status"
  note pauses "$(pauses_between refuses FAILED "$id")"
  expect_from 10.8 'shortest pause between two tries, ms' 25 250 "$(sort -n "$step.stdout" | head -n 1)"
  # The fifth and those after it are the longest. Load lengthens each, and hardly ever all of them.
  expect_from 10.9 'and of those that grow no more, ms' 250 499 "$(tail -n +5 "$step.stdout" | sort -n | head -n 1)"
  refuse_no_more allow-failing FAILED
  await 10.10 'as soon as it can, it becomes FAILED' status_is "$id" FAILED
  get retried "$id"
  expect 10.11 'with the same reason' "$unclaimable" "$(told)"
}

cancel_ends_the_retries() {
  local id
  refuse refuse-failing FAILED
  post cancelled 'Go one'
  id=$task_id
  await 10.12 'another task: the write of FAILED is tried again' tries_are 2 refuses FAILED "$id"
  cancel cancel "$id"
  expect 10.13 'cancel meanwhile: 202, canceled' '202 canceled' "$http_status $(of_body .cancel)"
  refuse_no_more allow-failing FAILED
  # Its slot is free when the worker has seen that the row is no longer QUEUED.
  await 10.14 'the retries end: the slot is free' slot_is_free
  if sabotaged 10.overwritten; then db sabotage "UPDATE go_tasks SET status = 'FAILED' WHERE id = '$id'"; fi
  get cancelled "$id"
  expect 10.15 'the cancelled one stays CANCELED' 'CANCELED 0/0/0' "$(told)"
  await 10.16 'the one that took the slot becomes FAILED' status_is "$task_id" FAILED
  get next "$task_id"
}

slot_is_free() {
  post next 'next'
  [[ $http_status == 202 ]]
}

# A write that the server never finishes: its trigger waits for a lock, and no lock_timeout ends that.
failing_write_is_bounded() {
  local id
  shut_gate
  db_script hold-failing hold.sql key="$gate_key" status=FAILED
  post held 'Go one'
  id=$task_id
  await 10.17 'another task: the write of FAILED hangs, and is tried again' tries_are 2 holds FAILED "$id"
  note pauses "$(pauses_between holds FAILED "$id")"
  expect_from 10.18 'from try to try, with at most 2 s for the SQL, ms' 100 $((2000 + 250 + scheduling_ms)) \
    "$(sort -n "$step.stdout" | tail -n 1)"
  open_gate
  await 10.19 'the gate is opened: it becomes FAILED' status_is "$id" FAILED
  get held "$id"
  db allow-failing 'DROP FUNCTION experiment_hold() CASCADE'
}

sigterm_ends_the_retries() {
  local id
  refuse refuse-failing FAILED
  post left 'Go one'
  id=$task_id
  await 10.20 'another task: the write of FAILED is tried again' tries_are 2 refuses FAILED "$id"
  terminate sigterm
  expect 10.21 'SIGTERM meanwhile: exit code 0' 0 "$exit_code"
  db_task left "$id"
  expect 10.22 'the task stays QUEUED' 'QUEUED 0/0/0' "$answer"
  refuse_no_more allow-failing FAILED
  sabotaged 10.claim-allowed || refuse_no_more allow-claims RUNNING
  serve restart --workers 1
  expect 10.23 'the next start finds it' 'failed=0 queued=1' "$(recovery_report | sed 's/ next=.*//')"
  await 10.24 'and it becomes SUCCEEDED' status_is "$id" SUCCEEDED
  get left "$id"
}

# When each try was made, by the server's clock, in seconds. refuse.sql and hold.sql write it.
tries() {
  server_log | awk -v said="experiment $1 $2 of $3 at " 'at = index($0, said) { print substr($0, at + length(said)) }'
}

# tries_are COUNT refuses|holds STATUS ID
tries_are() { (($(tries "${@:2}" | wc -l) >= $1)); }

pauses_between() { tries "$@" | awk 'NR > 1 { printf "%d\n", ($1 - last) * 1000 } { last = $1 }'; }
