#!/usr/bin/env bash
# Effects outside the database: a worker calls a receiver (receiver.rs), whose ledger is the world, and dies or sleeps around the
# call. Without a key an effect may happen twice; with one it happens once; and sometimes nobody can tell. README.md says more
# of each row.

set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib/lease.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/lease.sh"

# shellcheck disable=SC2034 # for lib/experiment.sh
{
  title='outside-effect: one task, one call, and what may come between them'
  rows=(1 2 3 4 5)
  faults=(
    '1.keyed         the calls have a key'
    '1.alive         A does not die'
    '2.keyless       the calls have no key'
    '2.alive         A does not die'
    '3.no-successor  nobody takes the task over'
    '3.fence-only    the late call without a key is not made'
    '4.answered      the answer is not lost'
    '4.keyless       the call has no key'
    '5.remembered    the receiver remembers'
    '5.forgotten     it forgets where it should remember'
  )
}

# begin_outside_row NAME
begin_outside_row() {
  begin_lease_row "$1"
  build_example receiver
  receiver=$example
  build_example outside_worker
  worker=$example
}

# receive NAME FLAG...: a receiver. ledger is the world outside; address is where the receiver listens.
receive() {
  # shellcheck disable=SC2154 # the number of the row, from lib/experiment.sh
  ledger=$scratch/ledger-$row-${1%%-*}
  start "$1" "$receiver" --ledger "$ledger" "${@:2}"
  await "$row.1" 'the receiver is there' receiver_is_ready "$1"
  address=$(sed -n 's/^ready listen=//p' "${started_step[$1]}.stdout")
}

receiver_is_ready() { grep --quiet --no-messages '^ready ' "${started_step[$1]}.stdout"; }

# stop_receiver NAME
stop_receiver() {
  kill -KILL "${started_pid[$1]}"
  release "$1"
}

# work NAME WORKER FLAG...: one task, one call.
work() { run "$1" "$worker" --dsn "$database_url" --worker "$2" --ttl "${ttl_ms}ms" --receiver "$address" "${@:3}"; }

# What a worker printed, in one line.
work_told() { jq --raw-output '"\(.worker) \(.epoch) \(.outside) \(.status)"' "$step.stdout" 2>/dev/null; }

# world NAME: the ledger, as evidence; answer has the number of effects.
world() {
  begin_step "$1"
  cp "$ledger" "$step.stdout"
  answer=$(wc -l <"$ledger")
}

# calls NAME: how often that receiver was called.
calls() { grep -c ' calls: ' "${started_step[$1]}.stdout"; }

# dies_between NAME FLAG...: A calls and dies; B follows when its lease is over.
dies_between() {
  lease_submit "$1-submit" 'Go one'
  if sabotaged "$row.alive"; then work "$1-a" A "${@:2}"; else work "$1-a" A --crash "${@:2}"; fi
  expect "$row.2" 'A calls and dies before it is recorded: exit code 73' 73 "$exit_code"
  db_lease "$1-after-a" "$task_id"
  expect "$row.3" 'the table knows of no effect' 'RUNNING|A|1|0|0' "$answer"
  world "$1-after-a"
  expect "$row.4" 'the world has one' 1 "$answer"
  await_expiry "$row.5" "$task_id"
}

# ------------------------------------------------------------------ 1: no key

row_1() {
  begin_outside_row no_key
  local key=()
  if sabotaged 1.keyed; then key=(--key); fi
  receive receiver
  dies_between keyless "${key[@]}"
  work keyless-b B "${unhurried[@]}" "${key[@]}"
  expect 1.6 'B is told that the effect is done, and cannot know better' '0 B 2 done SUCCEEDED' "$exit_code $(work_told)"
  db_lease keyless "$task_id"
  expect 1.7 'the table has one effect' 'SUCCEEDED|B|2|2|1' "$answer"
  world keyless
  expect 1.8 'the world has two' 2 "$answer"
  stop_receiver receiver
  balance 1.9
}

# ------------------------------------------------------------------ 2: a key

row_2() {
  begin_outside_row key
  local key=(--key)
  if sabotaged 2.keyless; then key=(); fi
  receive receiver
  dies_between keyed "${key[@]}"
  work keyed-b B "${unhurried[@]}" "${key[@]}"
  expect 2.6 'B calls, too, and is told that the effect is known' '0 B 2 known SUCCEEDED' "$exit_code $(work_told)"
  db_lease keyed "$task_id"
  expect 2.7 'the table has one effect' 'SUCCEEDED|B|2|2|1' "$answer"
  world keyed
  expect 2.8 'and so has the world' 1 "$answer"
  expect 2.9 'of two calls' 2 "$(calls receiver)"
  stop_receiver receiver
  balance 2.10
}

# ------------------------------------------------------------------ 3: a late call

row_3() {
  begin_outside_row late
  receive receiver
  late_call fenced --key
  expect 3.6 'with key and epoch the late call is refused' "4 yes" \
    "$exit_code $(says 'A: lease lost: task[0] is not ours any more under epoch 1; the receiver had said: fenced')"
  world fenced
  expect 3.7 'the world has one effect' 1 "$answer"
  if sabotaged 3.fence-only; then late_call keyless --key; else late_call keyless; fi
  expect 3.8 'without them the receiver obeys; the database refuses the rest' "4 yes" \
    "$exit_code $(says 'A: lease lost: task[1] is not ours any more under epoch 1; the receiver had said: done')"
  world keyless
  expect 3.9 'the world has two effects more: a lease stops nobody outside the database' 3 "$answer"
  stop_receiver receiver
  balance 3.10
}

# late_call NAME FLAG...: A sleeps before its call until its lease is over and B has done the task; then it calls.
late_call() {
  lease_submit "$1-submit" 'Go one'
  start "$1-a" "$worker" --dsn "$database_url" --worker A --ttl "${ttl_ms}ms" --receiver "$address" --hold "${@:2}"
  await 3.2 'A holds the task, before its call' is_holding "$1-a"
  await_expiry 3.3 "$task_id"
  sabotaged 3.no-successor || work "$1-b" B "${unhurried[@]}" "${@:2}"
  expect 3.4 'B calls and ends the task' '0 B 2 done SUCCEEDED' "$exit_code $(work_told)"
  release "$1-a"
  local late=$exit_code late_step=$step
  db_lease "$1-after" "$task_id"
  expect 3.5 'what A does then leaves the row as it is' 'SUCCEEDED|B|2|2|1' "$answer"
  exit_code=$late step=$late_step
}

# ------------------------------------------------------------------ 4: a lost answer

row_4() {
  begin_outside_row lost_answer
  local lost=1 key=(--key)
  if sabotaged 4.answered; then lost=0; fi
  if sabotaged 4.keyless; then key=(); fi
  receive keyless-receiver --lose-answers "$lost"
  lease_submit keyless-submit 'Go one'
  work keyless-a A "${unhurried[@]}"
  expect 4.2 'without a key A cannot tell what its call did, and says so' '0 A 1 unknown FAILED' "$exit_code $(work_told)"
  db_task keyless "$task_id"
  expect 4.3 'the task is FAILED, for somebody to look at' \
    'FAILED 0/0/0 outside effect unknown: no answer, and another call might have another effect' "$answer"
  world keyless
  expect 4.4 'in truth the effect was had' 1 "$answer"
  stop_receiver keyless-receiver

  receive keyed-receiver --lose-answers "$lost"
  lease_submit keyed-submit 'Go one'
  work keyed-a A "${unhurried[@]}" "${key[@]}"
  expect 4.5 'with a key A asks again, and is told' '0 A 1 known SUCCEEDED' "$exit_code $(work_told)"
  world keyed
  expect 4.6 'one effect' 1 "$answer"
  expect 4.7 'of two calls' 2 "$(calls keyed-receiver)"
  stop_receiver keyed-receiver
  balance 4.8
}

# ------------------------------------------------------------------ 5: a receiver that forgets

row_5() {
  begin_outside_row forgetful
  local memory=() good_memory=(--remember)
  if sabotaged 5.remembered; then memory=(--remember); fi
  if sabotaged 5.forgotten; then good_memory=(); fi
  receive forgetful-receiver
  dies_between forgetful --key
  stop_receiver forgetful-receiver
  receive forgetful-again "${memory[@]}"
  work forgetful-b B "${unhurried[@]}" --key
  expect 5.6 'a receiver that has lost its memory cannot tell; B says so' '0 B 2 unknown FAILED' "$exit_code $(work_told)"
  db_task forgetful "$task_id"
  expect 5.7 'the task is FAILED, for somebody to look at' \
    'FAILED 0/0/0 outside effect unknown: the receiver cannot tell' "$answer"
  world forgetful
  expect 5.8 'in truth the effect was had, and not again' 1 "$answer"
  lease_submit next-submit 'Go one'
  work next-c C "${unhurried[@]}" --key
  expect 5.9 'of what it cannot have seen before it can tell' '0 C 1 done SUCCEEDED' "$exit_code $(work_told)"
  stop_receiver forgetful-again

  receive mindful-receiver
  dies_between mindful --key
  stop_receiver mindful-receiver
  receive mindful-again "${good_memory[@]}"
  work mindful-b B "${unhurried[@]}" --key
  expect 5.10 'one that wrote the key with the effect can' '0 B 2 known SUCCEEDED' "$exit_code $(work_told)"
  world mindful
  expect 5.11 'one effect' 1 "$answer"
  stop_receiver mindful-again
  balance 5.12
}

run_experiment outside-effect 1 1 "$@"
