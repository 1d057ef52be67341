# shellcheck shell=bash
# Runs the real `taskstats serve` and speaks HTTP with it. Source it.
#
# Never here: ending a process by its name. What start_service started is known by its pid.

# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The binary that `cargo build --release` in the repository makes.
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$repository/$target
taskstats=$target/release/taskstats

# initdb, or crash recovery after a kill, on a slow machine.
ready_patience=150
# The service's own drain timeout is 30 s.
stop_patience=60
# A megabyte of text is counted within milliseconds; the rest is a slow disk.
task_patience=60

service_pid=
service_log=
service_url=
# shellcheck disable=SC2034 # for those who source this
admin_url=

# start_service DIRECTORY FLAG...: runs `taskstats serve` and waits until it is ready. Its stdout and stderr go to
# DIRECTORY/serve.out and serve.err. Fails when it ends before it is ready.
start_service() {
  service_log=$1
  : >"$service_log/serve.out"
  # nohup: whoever wants to keep it may close the terminal.
  nohup "$taskstats" serve "${@:2}" >"$service_log/serve.out" 2>"$service_log/serve.err" </dev/null &
  service_pid=$!
  wait_until "$ready_patience" service_is_ready_or_gone || return
  local listen admin
  read -r listen admin < <(ready_addresses) || return
  service_url=http://$listen
  # shellcheck disable=SC2034
  admin_url=http://$admin
}

service_is_ready_or_gone() {
  [[ -n $(ready_addresses) ]] || ! kill -0 "$service_pid" 2>/dev/null
}

# Out of `ready listen=127.0.0.1:40001 admin=127.0.0.1:40002 failed=0 …`: the real ports, if 0 was asked for.
ready_addresses() {
  sed -n 's/^ready listen=\([^ ]*\) admin=\([^ ]*\) .*/\1 \2/p' "$service_log/serve.out"
}

# Ends the service as a supervisor would. The status is its exit code, or 124 if it did not end: then it is killed.
stop_service() {
  local pid=$service_pid
  service_pid=
  kill -TERM "$pid" 2>/dev/null || true
  if ! timeout "$stop_patience" tail --pid="$pid" --sleep-interval=0.05 -f /dev/null; then
    kill -KILL "$pid"
    wait "$pid" || true
    return 124
  fi
  wait "$pid"
}

# use_scratch: a directory for this run alone, in $scratch, and the end of everything in it when the script ends. Who has more
# to clean up sets a trap of its own afterwards and calls clean_up_scratch there.
use_scratch() {
  scratch=$(mktemp -d)
  # PostgreSQL, if started by root, is somebody else and has to get through.
  chmod 711 "$scratch"
  trap clean_up_scratch EXIT
}

clean_up_scratch() {
  [[ -z $service_pid ]] || stop_service || true
  "$taskstats" db stop --data "$scratch/data" >/dev/null 2>&1 || true
  rm -rf "$scratch"
}

# start_in_scratch FLAG...: the service with a private PostgreSQL there, on free ports. Fails when it does not get ready.
start_in_scratch() {
  start_service "$scratch" --data "$scratch/data" --listen 127.0.0.1:0 --admin 127.0.0.1:0 "$@" ||
    fail "the service does not start: $(tail -n 3 "$scratch/serve.err")"
}

# scratch_sql PSQL_ARGUMENT...: bare values out of its database.
scratch_sql() {
  psql --no-psqlrc --quiet --tuples-only --no-align "$("$taskstats" db url --data "$scratch/data")" "$@"
}

# request FILE CURL_ARGUMENT...: one HTTP request on the public listener; the body goes to FILE, the status to stdout.
# The last argument is the path. --globoff: task ids have brackets.
request() {
  curl --silent --show-error --noproxy '*' --globoff --max-time 30 --output "$1" --write-out '%{http_code}' \
    "${@:2:$#-2}" "$service_url${*: -1}"
}

# submit FILE ANSWER: sends the text of FILE as a task; the answer goes to ANSWER, the HTTP status to stdout.
submit() {
  jq --raw-input --slurp '{text: .}' "$1" |
    request "$2" --header 'Content-Type: application/json' --data-binary @- /tasks
}

# await_terminal ID ANSWER: asks until the task is in a terminal state. The last answer is in ANSWER.
await_terminal() {
  wait_until "$task_patience" is_terminal "$1" "$2"
}

is_terminal() {
  [[ $(request "$2" "/tasks/$1" 2>/dev/null) == 200 ]] &&
    jq --exit-status '.status | IN("SUCCEEDED", "FAILED", "CANCELED")' "$2" >/dev/null
}
