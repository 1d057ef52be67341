# shellcheck shell=bash
# Tasks under leases, as experiments use them: workers that run to their end, workers that wait at a gate, and what the
# table says of owner, epoch and effect. For lease.sh and outside-effect.sh.
#
# Whether a lease is over is asked of the database; nothing here counts seconds.

# shellcheck source-path=SCRIPTDIR source=experiment.sh
source "$(dirname "${BASH_SOURCE[0]}")/experiment.sh"

# How long a worker's claim holds, unless a step says otherwise: two seconds, or longer where the machine is so slow that a
# worker that comes within the lease might find it over. See measure_lease.
least_ttl_ms=2000
ttl_ms=$least_ttl_ms
# For those whose lease is to outlast them, however slow they are.
unhurried=(--ttl 5m)

# Processes in the background, by the name of their step.
declare -A started_pid started_step started_gate

# ------------------------------------------------------------------ workers

# lease_submit NAME TEXT: task_id is the new task's.
lease_submit() {
  run "$1" "$taskstats" lease submit --dsn "$database_url" --text "$2"
  # shellcheck disable=SC2034 # for those who source this
  task_id=$(jq --raw-output .id "$step.stdout")
}

# lease_run NAME WORKER FLAG...: to its end.
lease_run() {
  run "$1" "$taskstats" lease run --dsn "$database_url" --worker "$2" --ttl "${ttl_ms}ms" "${@:3}"
}

# start_lease_run NAME WORKER FLAG...: in the background.
start_lease_run() {
  start "$1" "$taskstats" lease run --dsn "$database_url" --worker "$2" --ttl "${ttl_ms}ms" "${@:3}"
}

# What a run printed, in one line; nothing if it printed nothing.
run_told() { jq --raw-output '"\(.id) \(.worker) \(.epoch) \(.new) \(.status) \(.words)"' "$step.stdout" 2>/dev/null; }

# within_lease ATTEMPT...: the attempt lets A claim a task and B come too early. Where the machine was so slow that B came
# after the lease of A, it says nothing about leases: it is made again, with a new task and longer leases. answer: whether B
# came within it, by the clock of the database.
within_lease() {
  local longest_ms=30000
  while true; do
    "$@"
    db still-held "SELECT status = 'RUNNING' AND lease_owner = 'A' AND lease_until > clock_timestamp()
                     FROM go_tasks WHERE id = '$task_id'"
    if [[ $answer == t ]] || ((ttl_ms >= longest_ms)); then break; fi
    ((ttl_ms *= 4))
    note longer-lease "B came too late: leases are of $ttl_ms ms"
    # What A has left must not be in the way of the next attempt.
    lease_run sweep nobody "${unhurried[@]}"
  done
}

# says TEXT: on stderr, in the last step.
says() { if grep --quiet --fixed-strings -- "$1" "$step.stderr"; then say yes; fi; }

# start NAME COMMAND...: in the background, with a gate as stdin: a fifo that we hold open. `release` opens it.
start() {
  begin_step "$1"
  printf '%q ' "${@:2}" >"$step.command"
  printf '\n' >>"$step.command"
  local gate=$scratch/${step##*/}.gate descriptor
  mkfifo "$gate"
  exec {descriptor}<>"$gate"
  started_gate[$1]=$descriptor started_step[$1]=$step
  (
    # A gate that another process holds open does not open.
    for descriptor in "${started_gate[@]}"; do exec {descriptor}>&-; done
    exec "${@:2}"
  ) <"$gate" >"$step.stdout" 2>"$step.stderr" &
  started_pid[$1]=$!
  say "$!" >>"$scratch/pids"
}

# Whether it waits at its gate, with the task in its hands.
is_holding() { grep --quiet --no-messages 'until stdin ends' "${started_step[$1]}.stderr"; }

# Whether it has been stopped by SIGSTOP.
is_stopped() { grep --quiet '^State:[[:space:]]*T' "/proc/${started_pid[$1]}/status"; }

# open_stdin NAME: its gate.
open_stdin() {
  local descriptor=${started_gate[$1]}
  exec {descriptor}>&-
  unset "started_gate[$1]"
}

# release NAME: opens its gate and waits for its end; then it is the last step.
release() {
  [[ -z ${started_gate[$1]-} ]] || open_stdin "$1"
  step=${started_step[$1]}
  exit_code=0
  # The shell would announce the death of its job.
  { wait "${started_pid[$1]}" || exit_code=$?; } 2>/dev/null
  # The system may soon give its number to somebody else, who would seem to be left of this experiment.
  sed --in-place "/^${started_pid[$1]}\$/d" "$scratch/pids"
  unset "started_pid[$1]"
  say "$exit_code" >"$step.exit"
}

# A row of such an experiment begins with this: whatever ends it, its processes end with it. Each has a database of its own,
# because a worker takes whichever task waits.
begin_lease_row() {
  trap end_lease_row EXIT
  use_database "$1"
  measure_lease
}

# A worker that has nothing to claim does all that a worker does up to its claim.
measure_lease() {
  local since took factor=8
  # The first one applies the schema.
  lease_run schema nobody
  since=$(milliseconds)
  lease_run measure nobody
  took=$(($(milliseconds) - since))
  if ((factor * took > ttl_ms)); then ttl_ms=$((factor * took)); fi
  note lease "a worker takes $took ms to its claim; leases are of $ttl_ms ms"
}

end_lease_row() {
  local code=$? pid
  set +e
  for pid in "${started_pid[@]}"; do
    kill -KILL "$pid"
    wait "$pid"
  done 2>/dev/null
  (exit "$code")
  end_row
}

# ------------------------------------------------------------------ the table

# lease_is_over ID: by the database's clock.
lease_is_over() {
  [[ $(psql "${psql_options[@]}" --command \
    "SELECT lease_until <= clock_timestamp() FROM go_tasks WHERE id = '$1'" "$database_url") == t ]]
}

# await_expiry NUMBER ID
await_expiry() {
  # Until the lease is over, and then as long as for anything else.
  # shellcheck disable=SC2034 # for await
  local patience=$((patience + ttl_ms / 1000))
  await "$1" 'the lease is over, by the clock of the database' lease_is_over "$2"
  db "clock-$1" "SELECT lease_until, clock_timestamp() FROM go_tasks WHERE id = '$2'"
}

# db_lease NAME ID: status, owner, epoch and words of the task, and how many effects are recorded for it.
db_lease() {
  db "$1" "SELECT status, lease_owner, lease_epoch, words,
                  (SELECT count(*) FROM go_task_effects WHERE task_id = id)
             FROM go_tasks WHERE id = '$2'"
}

# db_effect NAME ID: what is recorded of it, and by whom.
db_effect() { db "$1" "SELECT words, lease_owner, lease_epoch FROM go_task_effects WHERE task_id = '$2'"; }

# db_row NAME ID: every column, to be compared as it is.
db_row() { db "$1" "SELECT to_json(task) FROM go_tasks AS task WHERE id = '$2'"; }

# expire ID: sabotage only.
expire() { db sabotage "UPDATE go_tasks SET lease_until = clock_timestamp() WHERE id = '$1'"; }

# balance NUMBER: the last look of a row at its database. Takes three numbers from this one on.
balance() {
  local prefix=${1%.*} number=${1#*.}
  db_count unfinished "status NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED')"
  expect "$prefix.$number" 'no task is left unfinished' 0 "$answer"
  # A cancel may come after the effect of the chapter's first commit point.
  db unbalanced "SELECT id, status, effect.words
                   FROM go_tasks AS task LEFT JOIN go_task_effects AS effect ON task_id = id
                  WHERE CASE WHEN status = 'SUCCEEDED' AND lease_until IS NOT NULL THEN effect.words IS DISTINCT FROM task.words
                             WHEN status <> 'CANCELED' THEN task_id IS NOT NULL END"
  expect "$prefix.$((number + 1))" 'one effect for each success under a lease, with its words; none for other ends' '' "$answer"
  db triggers "SELECT (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal),
                      (SELECT count(*) FROM pg_proc WHERE proname LIKE 'experiment\\_%')"
  expect "$prefix.$((number + 2))" 'no trigger and no function of the experiment is left' '0|0' "$answer"
}

# build_example NAME: one of the programs beside the scripts; example has its path.
build_example() {
  (cd "$repository" && quietly cargo build --release --locked --example "$1")
  # shellcheck disable=SC2034 # for those who source this
  example=$(dirname "$taskstats")/examples/$1
}
