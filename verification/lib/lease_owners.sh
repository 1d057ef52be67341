# shellcheck shell=bash
# Rows 3 to 6 of the leases: two who want one task, and owners that are too late. For lease.sh.

# From lib/lease.sh, which lease.sh sources first. (Sourced here too, it would keep shellcheck busy for minutes.)
# shellcheck disable=SC2034,SC2154

# ------------------------------------------------------------------ 3: two want one task

row_3() {
  begin_lease_row contest
  lease_submit submit-first 'Go one'
  lease_run first A "${unhurried[@]}"
  open_session
  sabotaged 3.gate-missing || build_gate build-gate RUNNING
  if sabotaged 3.both-win; then
    ask "CREATE FUNCTION experiment_undo() RETURNS trigger LANGUAGE plpgsql AS
           \$\$ BEGIN NEW.status := 'QUEUED'; RETURN NEW; END \$\$;
         CREATE TRIGGER experiment_undo BEFORE UPDATE ON go_tasks FOR EACH ROW
           WHEN (NEW.status = 'RUNNING' AND OLD.status = 'QUEUED') EXECUTE FUNCTION experiment_undo()"
  fi
  local round
  for ((round = 1; round <= repeats; round++)); do
    contest "$(printf '%02d' "$round")"
  done
  sabotaged 3.gate-missing || remove_gate remove-gate
  contest_often $((repeats * 100))
  close_session
  balance 3.10
}

# contest ROUND: two processes. The claim of one is held where it has the row already, until the other waits for that row.
contest() {
  local round=$1 codes='' told='' worker
  lease_submit "$round-submit" 'Go one'
  shut_gate
  for worker in A B; do
    # The server gives up waiting for a row after half of this.
    start_lease_run "$round-$worker" "$worker" "${unhurried[@]}" --db-timeout 60s
  done
  await 3.1 'one claim has the row and is held, the other waits for it' both_claim
  open_gate
  for worker in A B; do
    release "$round-$worker"
    codes+="$exit_code "
    told+=$(run_told)
  done
  expect 3.2 'one exit code is 0, the other 3' '0 3' "$(tr ' ' '\n' <<<"$codes" | grep . | sort | paste -s -d ' ')"
  expect 3.3 'one of them did it, under epoch 1' yes "$([[ $told =~ ^"$task_id "[AB]' 1 true SUCCEEDED 2'$ ]] && say yes)"
  db_lease "$round-row" "$task_id"
  expect 3.4 'the table names the same one' "$(awk '{ print $5 "|" $2 "|" $3 "|" $6 "|1" }' <<<"$told")" "$answer"
}

both_claim() {
  ask "SELECT count(*) FILTER (WHERE locktype = 'advisory' AND objid = $gate_key),
              count(*) FILTER (WHERE locktype = 'transactionid')
         FROM pg_locks WHERE NOT granted"
  [[ $answer == '1|1' ]]
}

# contest_often ROUNDS: two stores, each with connections of its own, claim as the commands do; see contenders.rs.
contest_often() {
  build_example contenders
  run contenders "$example" "$database_url" "$1"
  local told=$step.stdout
  expect 3.5 "so many more rounds of two stores" "0 $1" "$exit_code $(wc -l <"$told")"
  expect 3.6 'each has one winner' "$1" "$(grep -cE '^task\[[0-9]+\] [AB]$' "$told" || true)"
  db winners "SELECT id || ' ' || lease_owner FROM go_tasks
               WHERE lease_epoch = 1 AND status = 'SUCCEEDED' AND text = 'contest' ORDER BY go_task_number(id)"
  run difference diff "$told" "$step.stdout"
  expect 3.7 'the table names the same ones, each under epoch 1' '' "$(head -n 3 "$step.stdout")"
  expect_from 3.8 'A wins some of them' 1 "$(($1 - 1))" "$(grep -c ' A$' "$told" || true)"
  expect_from 3.9 'B wins some of them' 1 "$(($1 - 1))" "$(grep -c ' B$' "$told" || true)"
}

# ------------------------------------------------------------------ 4: writes under an old epoch

row_4() {
  begin_lease_row stale
  stale_writes before A B 'effect refused, end refused'
  # Under one name, only the epoch tells them apart.
  stale_writes before A A 'effect refused, end refused'
  stale_writes after A B 'effect recorded, end refused'
  expired_only
  balance 4.14
}

# stale_writes before|after OLD NEW REFUSED: OLD is held there until its lease is over and NEW holds the task under epoch 2;
# then OLD tries to write.
stale_writes() {
  local case=$1-$2-$3 before is_new=true recorded="2|$3|2" count=0
  if [[ $1 == after ]]; then is_new=false recorded="2|$2|1" count=1; fi
  lease_submit "$case-submit" 'Go one'
  start_lease_run "$case-old" "$2" --hold "$1-effect"
  await 4.1 'the first holds the task' is_holding "$case-old"
  await_expiry 4.2 "$task_id"
  sabotaged 4.no-successor || start_lease_run "$case-new" "$3" "${unhurried[@]}" --hold "$1-effect"
  sabotaged 4.no-successor || await 4.3 'the second holds it too' is_holding "$case-new"
  if sabotaged 4.unfenced; then
    db sabotage "UPDATE go_tasks SET lease_owner = '$2', lease_epoch = 1, lease_until = 'infinity' WHERE id = '$task_id'"
  fi
  db_lease "$case-before" "$task_id"
  expect 4.4 'the table names the second, epoch 2' "RUNNING|$3|2|0|$count" "$answer"
  db_row "$case-before" "$task_id"
  before=$answer
  release "$case-old"
  expect 4.5 'the first writes under epoch 1: exit code 4' 4 "$exit_code"
  expect 4.6 'it says what was refused' yes \
    "$(says "$2: lease lost: $task_id is not ours any more under epoch 1: $4")"
  expect 4.7 'and prints no result' '' "$(<"$step.stdout")"
  db_row "$case-after" "$task_id"
  expect 4.8 'no byte of the row has changed' "$before" "$answer"
  release "$case-new"
  expect 4.9 'the second ends it: exit code 0' "0 $task_id $3 2 $is_new SUCCEEDED 2" "$exit_code $(run_told)"
  db_effect "$case-effect" "$task_id"
  expect 4.10 'the effect is of whoever recorded it first under a lease' "$recorded" "$answer"
}

# Nobody has followed; a lease that is over is over all the same.
expired_only() {
  lease_submit alone-submit 'Go one'
  start_lease_run alone-old A --hold before-effect
  await 4.1 'the first holds the task' is_holding alone-old
  await_expiry 4.2 "$task_id"
  release alone-old
  expect 4.11 'too late, though nobody has followed: exit code 4' 4 "$exit_code"
  db_lease alone "$task_id"
  expect 4.12 'still RUNNING under epoch 1, no effect' 'RUNNING|A|1|0|0' "$answer"
  lease_run alone-new B "${unhurried[@]}"
  expect 4.13 'the next one does it' "0 $task_id B 2 true SUCCEEDED 2" "$exit_code $(run_told)"
}

# ------------------------------------------------------------------ 5: an owner that sleeps

row_5() {
  begin_lease_row sleeper
  local before
  lease_submit submit 'Go one'
  start_lease_run a A --hold before-effect
  await 5.1 'A holds the task' is_holding a
  sabotaged 5.awake || kill -STOP "${started_pid[a]}"
  await 5.2 'A is stopped' is_stopped a
  await_expiry 5.3 "$task_id"
  sabotaged 5.no-successor || lease_run b B "${unhurried[@]}"
  expect 5.4 'B does the task under epoch 2' 'task[0] B 2 true SUCCEEDED 2' "$(run_told)"
  db_row before-cont "$task_id"
  before=$answer
  db_effect before-cont "$task_id"
  expect 5.5 'the effect is of B' '2|B|2' "$answer"
  if sabotaged 5.unfenced; then
    db sabotage "UPDATE go_tasks SET status = 'RUNNING', words = 0, bytes = 0, runes = 0,
                        lease_owner = 'A', lease_epoch = 1, lease_until = 'infinity'"
  fi
  open_stdin a
  expect 5.6 'A has slept all the time' yes "$(is_stopped a && say yes)"
  kill -CONT "${started_pid[a]}"
  release a
  expect 5.7 'SIGCONT: A ends with exit code 4' 4 "$exit_code"
  expect 5.8 'and says why' yes \
    "$(says 'A: lease lost: task[0] is not ours any more under epoch 1: effect refused, end refused')"
  db_row after-cont "$task_id"
  expect 5.9 'no byte of the row has changed' "$before" "$answer"
  db_effect after-cont "$task_id"
  expect 5.10 'nor has the effect' '2|B|2' "$answer"
  balance 5.11
}

# ------------------------------------------------------------------ 6: clocks that are wrong

row_6() {
  begin_lease_row clocks
  find_faketime
  skewed +3600 -3600
  skewed -3600 +3600
  balance 6.13
}

find_faketime() {
  local found
  missing_packages=()
  compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing_packages+=(faketime)
  install_missing
  mapfile -t found < <(compgen -G '/usr/lib/*/faketime/libfaketime.so.1')
  faketime=${found[0]}
}

# with_clock SECONDS: wrong_clock makes the clock of a process wrong by so much. Only that of the calendar: a wrong clock is
# no faster one.
with_clock() {
  local wrong=$1
  if sabotaged 6.right-clock; then wrong=+0; fi
  wrong_clock=(env "LD_PRELOAD=$faketime" "FAKETIME=${wrong}s" FAKETIME_DONT_FAKE_MONOTONIC=1)
}

# skewed SECONDS SECONDS: by so much the clocks of A and of B are wrong.
skewed() {
  within_lease early_with_clocks "$@"
  expect 6.6 'B within the lease: exit code 3' 3 "$early"
  expect 6.7 'that was within the lease, by the clock of the database' t "$answer"
  db "lease$1" "SELECT started_at BETWEEN '$since' AND clock_timestamp(),
                       round(extract(epoch FROM lease_until - started_at) * 1000)
                  FROM json_to_record('$row_before') AS task (started_at timestamptz, lease_until timestamptz)"
  expect 6.5 'the lease of A begins then and lasts its time, by the clock of the database' "t|$ttl_ms" "$answer"
  db_row "after-b$2" "$task_id"
  expect 6.8 'no byte of the row has changed' "$row_before" "$answer"
  await_expiry 6.9 "$task_id"
  run_b "b$2"
  expect 6.10 'B after the lease: exit code 0' 0 "$exit_code"
  expect 6.11 'epoch 2, and the effect is new' "$task_id B 2 true SUCCEEDED 2" "$(run_told)"
  db "times$2" "SELECT finished_at - clock_timestamp() BETWEEN '-1 minute' AND '0', written_at BETWEEN started_at AND finished_at
                  FROM go_tasks JOIN go_task_effects ON task_id = id WHERE id = '$task_id'"
  expect 6.12 'every time in the rows is one of the database' 't|t' "$answer"
}

# A claims with its clock and dies; B comes too early with its own.
early_with_clocks() {
  lease_submit "submit$1" 'Go one'
  with_clock "$1"
  run "date$1" "${wrong_clock[@]}" date +%s
  expect_from 6.1 'the clock of A is wrong by so many seconds, or a few more' "$((3600 - 10))" "$((3600 + 10))" \
    $((($(<"$step.stdout") - EPOCHSECONDS) * ${1:0:1}1))
  db "clock$1" 'SELECT clock_timestamp()'
  since=$answer
  start "a$1" "${wrong_clock[@]}" "$taskstats" lease run --dsn "$database_url" --worker A --ttl "${ttl_ms}ms" \
    --hold before-effect --crash before-effect
  await 6.2 'A holds the task' is_holding "a$1"
  expect 6.3 'its clock is that of libfaketime' yes \
    "$(grep --quiet --fixed-strings "$faketime" "/proc/${started_pid[a$1]}/maps" && say yes)"
  release "a$1"
  expect 6.4 'A dies' 72 "$exit_code"
  if sabotaged 6.own-clock; then
    db sabotage "UPDATE go_tasks SET lease_until = lease_until + '1 hour' WHERE lease_epoch = 1"
  fi
  with_clock "$2"
  db_row "before-b$2" "$task_id"
  row_before=$answer
  run_b "b$2-too-early"
  early=$exit_code
}

# run_b NAME: B, with its clock.
run_b() {
  run "$1" "${wrong_clock[@]}" "$taskstats" lease run --dsn "$database_url" --worker B "${unhurried[@]}"
}
