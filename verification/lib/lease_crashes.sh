# shellcheck shell=bash
# Rows 1, 2 and 8 of the leases: owners that die before and after their effect, and those that nobody follows. For lease.sh.

# From lib/lease.sh, which lease.sh sources first. (Sourced here too, it would keep shellcheck busy for minutes.)
# shellcheck disable=SC2034,SC2154

# ------------------------------------------------------------------ 1: crash before the effect

row_1() {
  begin_lease_row crash_before
  within_lease early_after_crash_before
  expect 1.4 'B within the lease: exit code 3, and it says so' '3 yes' "$early"
  expect 1.5 'that was within the lease, by the clock of the database' t "$answer"
  await_expiry 1.6 "$task_id"
  db_lease after-lease "$task_id"
  expect 1.3 'after the lease as before: RUNNING, epoch 1, no effect' 'RUNNING|A|1|0|0' "$answer"
  if sabotaged 1.touched; then db sabotage "UPDATE go_tasks SET cancel_requested = true WHERE id = '$task_id'"; fi
  db_row after-b "$task_id"
  expect 1.7 'no byte of the row has changed, by B or by the end of the lease' "$row_before" "$answer"
  lease_run b B "${unhurried[@]}"
  expect 1.8 'B after the lease: exit code 0' 0 "$exit_code"
  expect 1.9 'epoch 2, and the effect is new' "$task_id B 2 true SUCCEEDED 2" "$(run_told)"
  db_lease after-b "$task_id"
  expect 1.10 'SUCCEEDED, epoch 2, words 2, one effect' 'SUCCEEDED|B|2|2|1' "$answer"
  if sabotaged 1.effect-lost; then db sabotage 'DELETE FROM go_task_effects'; fi
  db_effect effect "$task_id"
  expect 1.11 'the effect is of B' '2|B|2' "$answer"
  balance 1.12
}

# What B did is in early, what the row was before it in row_before.
early_after_crash_before() {
  lease_submit submit 'Go one'
  expect 1.1 'submit: exit code 0' 0 "$exit_code"
  if sabotaged 1.alive; then lease_run a A; else lease_run a A --crash before-effect; fi
  expect 1.2 'A ends before its effect with exit code 72' 72 "$exit_code"
  if sabotaged 1.expired; then expire "$task_id"; fi
  db_row before-b "$task_id"
  row_before=$answer
  lease_run b-too-early B "${unhurried[@]}"
  early="$exit_code $(says 'B: nothing to claim')"
}

# ------------------------------------------------------------------ 2: crash between effect and end

row_2() {
  begin_lease_row crash_after
  within_lease early_after_crash_after
  expect 2.3 'B within the lease: exit code 3' 3 "$early"
  db_row after-b "$task_id"
  expect 2.4 'no byte of the row has changed' "$row_before" "$answer"
  await_expiry 2.5 "$task_id"
  db_lease after-crash "$task_id"
  expect 2.2 'RUNNING, epoch 1, one effect' 'RUNNING|A|1|0|1' "$answer"
  if sabotaged 2.effect-lost; then db sabotage 'DELETE FROM go_task_effects'; fi
  lease_run b B "${unhurried[@]}"
  expect 2.6 'B after the lease: exit code 0' 0 "$exit_code"
  expect 2.7 'epoch 2, and the effect is not new' "$task_id B 2 false SUCCEEDED 2" "$(run_told)"
  db_lease after-b "$task_id"
  expect 2.8 'SUCCEEDED, epoch 2, words 2, still one effect' 'SUCCEEDED|B|2|2|1' "$answer"
  db_effect effect "$task_id"
  expect 2.9 'the effect is still that of A' '2|A|1' "$answer"
  balance 2.10
}

early_after_crash_after() {
  lease_submit submit 'Go one'
  if sabotaged 2.before; then lease_run a A --crash before-effect; else lease_run a A --crash after-effect; fi
  expect 2.1 'A ends after its effect with exit code 73' 73 "$exit_code"
  db_row before-b "$task_id"
  row_before=$answer
  lease_run b-too-early B "${unhurried[@]}"
  early=$exit_code
}

# ------------------------------------------------------------------ 8: no owner follows

row_8() {
  begin_lease_row no_owner
  abandoned_and_cancelled
  cancelled_in_hand
  attempts_run_out
  balance 8.17
}

# A plain service takes the cancel; it has no part in the task. cancelled has its answer.
cancel_by_http() {
  serve "serve-$1" --workers 1
  cancelled=
  if ! sabotaged 8.uncancelled; then
    cancel "cancel-$1" "$2"
    cancelled="$http_status $(of_body .cancel)"
  fi
  terminate "sigterm-$1"
}

abandoned_and_cancelled() {
  lease_submit submit-abandoned 'Go one'
  lease_run dies A --crash before-effect
  cancel_by_http abandoned "$task_id"
  expect 8.1 'cancel of a task whose owner is dead: 202, requested' '202 requested' "$cancelled"
  await_expiry 8.2 "$task_id"
  lease_run b-after-cancel B
  expect 8.3 'B after the lease: nothing to claim' 3 "$exit_code"
  expect 8.4 'it says what became of the task' yes "$(says "$task_id is CANCELED: its owners are gone")"
  db_lease abandoned "$task_id"
  expect 8.5 'CANCELED, never run again, no effect' 'CANCELED|A|1|0|0' "$answer"
}

# Its owner lives. The effect is the first commit point: it may stand although the task ends as CANCELED.
cancelled_in_hand() {
  lease_submit submit-in-hand 'Go one'
  start_lease_run in-hand A "${unhurried[@]}" --hold after-effect
  await 8.6 'A holds the task' is_holding in-hand
  cancel_by_http in-hand "$task_id"
  db in-hand "SELECT status, cancel_requested FROM go_tasks WHERE id = '$task_id'"
  expect 8.7 'a task in hand stays RUNNING until its worker stops' 'RUNNING|t' "$answer"
  release in-hand
  expect 8.8 'A goes on: exit code 0, CANCELED, no words' "0 $task_id A 1 true CANCELED 0" "$exit_code $(run_told)"
  db_lease in-hand "$task_id"
  expect 8.9 'so does the table say' 'CANCELED|A|1|0|1' "$answer"
}

attempts_run_out() {
  local dying limit=2
  lease_submit submit-deadly 'Go one'
  dying=$task_id
  lease_run first-dies A --max-attempts "$limit" --crash before-effect
  await_expiry 8.10 "$dying"
  lease_run second-dies B --max-attempts "$limit" --crash before-effect
  expect 8.11 'two owners die' 72 "$exit_code"
  await_expiry 8.12 "$dying"
  lease_submit submit-other 'Go one more'
  if sabotaged 8.patient; then limit=3; fi
  lease_run c C "${unhurried[@]}" --max-attempts "$limit"
  expect 8.13 'C passes over it, says so, and does the next' "yes 0 $task_id C 1 true SUCCEEDED 3" \
    "$(says "$dying is FAILED: its owners are gone") $exit_code $(run_told)"
  db_task deadly "$dying"
  expect 8.14 'FAILED with the reason' 'FAILED 0/0/0 2 owners died or lost their lease before completion' "$answer"
  db_lease deadly "$dying"
  expect 8.15 'under the epoch of the last owner, no effect' 'FAILED|B|2|0|0' "$answer"
  lease_run d D
  expect 8.16 'then there is nothing to claim' 3 "$exit_code"
}
