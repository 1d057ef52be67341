# shellcheck shell=bash
# What an experiment does step by step, and what it leaves of each step in $evidence:
#
#   ROW-NN-name.command  what was run      .stdout .stderr .exit  what came of it      .body  the body of the HTTP answer
#
# Source it. Never here: a judgement. See experiment.sh for those.

# shellcheck source-path=SCRIPTDIR source=service.sh
source "$(dirname "${BASH_SOURCE[0]}")/service.sh"

# Set by whoever runs the experiment.
evidence=
scratch=
data= # of the cluster
database_url=
gated= # the example's binary
row=
step_number=0

# What a step leaves in variables, for the assertions after it.
# shellcheck disable=SC2034 # for those who source this
{
  step=      # path of the evidence without its ending
  exit_code= # of the last step
  answer=    # what the database said
  http_status=
  http_ms=
  task_id= # of the last submission, if it was accepted
}

# begin_step NAME
begin_step() {
  ((step_number += 1))
  printf -v step '%s/%s-%02d-%s' "$evidence" "$row" "$step_number" "$1"
}

# run_step COMMAND...: never ends the script; the exit code is for the assertions.
run_step() {
  printf '%q ' "$@" >"$step.command"
  printf '\n' >>"$step.command"
  exit_code=0
  "$@" >"$step.stdout" 2>"$step.stderr" </dev/null || exit_code=$?
  say "$exit_code" >"$step.exit"
}

# run NAME COMMAND...
run() {
  begin_step "$1"
  run_step "${@:2}"
}

# note NAME TEXT: evidence of something that is not a command. No text is no line.
note() {
  begin_step "$1"
  printf '%s' "$2${2:+$'\n'}" >"$step.stdout"
}

milliseconds() {
  local microseconds=${EPOCHREALTIME/[.,]/}
  say "$((microseconds / 1000))"
}

# ------------------------------------------------------------------ the service

# serve NAME FLAG...: runs `taskstats serve` on the experiment's database and free ports. Fails if it does not get ready.
serve() {
  begin_step "$1"
  local directory=$scratch/${step##*/} flags=(--dsn "$database_url" --listen 127.0.0.1:0 --admin 127.0.0.1:0 "${@:2}")
  mkdir "$directory"
  ln -s "$step.stdout" "$directory/serve.out"
  ln -s "$step.stderr" "$directory/serve.err"
  printf '%q ' "$taskstats" serve "${flags[@]}" >"$step.command"
  exit_code=0
  start_service "$directory" "${flags[@]}" || exit_code=$?
  say "$service_pid" >>"$scratch/pids"
  return "$exit_code"
}

# What the ready line says of recovery.
recovery_report() { sed -n 's/^ready .*\(failed=.*\)$/\1/p' "$service_log/serve.out"; }

# service_says TEXT: on stderr, so far.
service_says() { grep -qF -- "$1" "$service_log/serve.err"; }

# terminate NAME: SIGTERM; exit_code is the service's.
terminate() {
  begin_step "$1"
  say "kill -TERM $service_pid" >"$step.command"
  exit_code=0
  stop_service || exit_code=$?
  say "$exit_code" >"$step.exit"
}

# kill_service NAME: SIGKILL; exit_code is the wait status.
kill_service() {
  begin_step "$1"
  say "kill -KILL $service_pid" >"$step.command"
  local pid=$service_pid
  service_pid=
  kill -KILL "$pid"
  exit_code=0
  # The shell would announce the death of its job.
  { wait "$pid" || exit_code=$?; } 2>/dev/null
  say "$exit_code" >"$step.exit"
}

# ------------------------------------------------------------------ HTTP

curl_options=(--silent --show-error --noproxy '*' --globoff --max-time 30)

# http NAME METHOD URL [JSON]: stdout has the head of the answer and, as its last line, status and seconds.
http() {
  begin_step "$1"
  local arguments=("${curl_options[@]}" --request "$2" --output "$step.body" --dump-header -
    --write-out '%{http_code} %{time_total}\n')
  if (($# > 3)); then
    arguments+=(--header 'Content-Type: application/json' --data-binary "$4")
  fi
  run_step curl "${arguments[@]}" "$3"
  local seconds
  read -r http_status seconds < <(tail -n 1 "$step.stdout")
  # As curl writes it: seconds with six decimals.
  # shellcheck disable=SC2034
  http_ms=$((10#${seconds/[.,]/} / 1000))
  [[ -e $step.body ]] || : >"$step.body" # there was no answer
}

# of_body FILTER: jq on the last body. Of what is not JSON it is nothing.
of_body() { jq --raw-output "$1" "$step.body" 2>/dev/null || true; }

# response_header NAME: of the last answer.
response_header() {
  tr -d '\r' <"$step.stdout" | sed -n "s/^$1: //Ip"
}

# ledger ID STATE: what a reply said of a task. The last word on each is compared with the database at the end.
ledger() { printf '%s\t%s\n' "$1" "$2" >>"$scratch/ledger"; }

# post NAME TEXT: submits. task_id is the new task's, or empty.
post() {
  http "$1" POST "$service_url/tasks" "$(jq --null-input --compact-output --arg text "$2" '{$text}')"
  task_id=
  if [[ $http_status == 202 ]]; then
    task_id=$(of_body .id)
    ledger "$task_id" QUEUED
  fi
}

# get NAME ID
get() {
  http "$1" GET "$service_url/tasks/$2"
  if [[ $http_status == 200 ]]; then
    ledger "$2" "$(of_body .status)"
  fi
}

# cancel NAME ID
cancel() {
  http "$1" POST "$service_url/tasks/$2/cancel"
  if [[ $(of_body .cancel) == canceled ]]; then
    ledger "$2" CANCELED
  fi
}

# What an answer says of a task, in one line.
told() { of_body '"\(.status) \(.words)/\(.bytes)/\(.runes)\(if .failure_reason then " " + .failure_reason else "" end)"'; }

# status_is ID STATUS: one look without evidence, to be repeated.
status_is() {
  [[ $(request "$scratch/look" "/tasks/$1" 2>/dev/null) == 200 && $(jq --raw-output .status "$scratch/look") == "$2" ]]
}

# ------------------------------------------------------------------ the database

psql_options=(--no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1)

# db NAME SQL: the result is in answer, rows apart by newlines, columns by |.
db() {
  run "$1" psql "${psql_options[@]}" --command "$2" "$database_url"
  # Nothing must look like no rows.
  ((exit_code == 0)) || fail "$1: $(<"$step.stderr")"
  # shellcheck disable=SC2034
  answer=$(<"$step.stdout")
}

# db_script NAME FILE [VARIABLE=VALUE...]: a file of verification/sql.
db_script() {
  local variables=() variable
  for variable in "${@:3}"; do variables+=(--set "$variable"); done
  run "$1" psql "${psql_options[@]}" "${variables[@]}" --file "$repository/verification/sql/$2" "$database_url"
  ((exit_code == 0)) || fail "$2: $(<"$step.stderr")"
}

# db_task NAME ID: the task's row in the form of `told`.
db_task() {
  db "$1" "SELECT concat_ws(' ', status, words || '/' || bytes || '/' || runes, failure_reason) FROM go_tasks WHERE id = '$2'"
}

# db_count NAME CONDITION: rows of go_tasks.
db_count() { db "$1" "SELECT count(*) FROM go_tasks WHERE $2"; }

# The server's own log, for what no row can tell.
server_log() { cat "$data/cluster/postgresql.log"; }

# ------------------------------------------------------------------ sums and circumstances

# What the verdicts are about: sums of the sources, versions, the binaries.
record_circumstances() {
  (cd "$repository" && source_files | xargs -0 sha256sum --) >"$evidence/SOURCES.SHA256SUMS"
  {
    say "experiment  ${0##*/} $*"
    say "commit      $(git_here rev-parse HEAD 2>/dev/null || say 'none: an unpacked package')"
    say "changed     $(git_here status --short 2>/dev/null | tr '\n' ';')"
    say "system      $(uname -srm), $(nproc) processors"
    say "compiler    $(rustc --version)"
    say "psql        $(psql --version)"
    say "server      $(psql "${psql_options[@]}" --command 'SELECT version()' "$database_url")"
    sha256sum "$taskstats" "$gated"
  } >"$evidence/circumstances.txt"
}

# Root may well check a tree that belongs to somebody else.
git_here() { git -c safe.directory='*' -C "$repository" "$@"; }

# NUL-separated: what git tracks; in an unpacked package, what its list of sums names.
source_files() {
  if [[ -e $repository/.git ]]; then
    # A file that is deleted in the working tree has no sum.
    git_here ls-files -z | while IFS= read -r -d '' file; do [[ ! -f $file ]] || printf '%s\0' "$file"; done
  else
    sed 's/^[0-9a-f]*  //' SHA256SUMS | tr '\n' '\0'
  fi
}

sum_evidence() {
  (cd "$evidence" && find . -type f ! -path ./SHA256SUMS -print0 | sort -z | xargs -0 sha256sum --) >"$scratch/sums"
  mv "$scratch/sums" "$evidence/SHA256SUMS"
}
