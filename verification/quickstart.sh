#!/usr/bin/env bash
# From a clean clone to two counted texts, and the proof that they were counted right: what the service answers over HTTP,
# what stands in PostgreSQL, and what wc counts must be the same numbers.
#
# Installs what is missing (Debian, Ubuntu), builds, runs `taskstats serve` on its embedded PostgreSQL, ends both.

set -euo pipefail

usage='usage: verification/quickstart.sh [--keep] [FILE]

  --keep   leave the service and its PostgreSQL running, and say where they are and how to end them
  FILE     a UTF-8 text to count beside "Go one"; default: the licences in /usr/share/common-licenses

Environment: TASKSTATS_DATA, the data directory (./taskstats-data of the repository); TASKSTATS_LISTEN and
TASKSTATS_ADMIN, addresses to listen on (127.0.0.1, free ports).'

here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"
# shellcheck source-path=SCRIPTDIR source=lib/service.sh
source "$here/lib/service.sh"

keep=
is_kept=
text_file=
database_url=
cluster_is_ours=
mismatches=0

main() {
  read_arguments "$@"
  # This script is about the embedded cluster.
  unset TASKSTATS_DSN
  data=$(realpath --canonicalize-missing "${TASKSTATS_DATA:-$repository/taskstats-data}")
  scratch=$(mktemp --directory --tmpdir taskstats-quickstart.XXXXXX)
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  choose_texts
  setup_for_running
  build
  start
  check_text 'Go one' "$scratch/go-one.txt"
  check_text "${text_file##*/}" "$text_file"
  if [[ -n $keep ]]; then
    explain_what_is_left
  else
    stop
  fi
  ((mismatches == 0)) || fail "$mismatches of 2 texts: HTTP, SQL and wc do not agree"
}

read_arguments() {
  while (($#)); do
    case $1 in
      --keep) keep=yes ;;
      --help | -h)
        say "$usage"
        exit
        ;;
      -*) fail "unknown flag $1; see --help" ;;
      *)
        [[ -z $text_file ]] || fail 'one FILE only; see --help'
        [[ -f $1 && -r $1 ]] || fail "$1: not a file that can be read"
        text_file=$(realpath -- "$1")
        ;;
    esac
    shift
  done
}

build() {
  say 'building (the first time takes some minutes)'
  cd "$repository"
  quietly cargo build --release --locked
}

choose_texts() {
  printf 'Go one' >"$scratch/go-one.txt"
  if [[ -z $text_file ]]; then
    text_file=$scratch/licences.txt
    # Regular files: the links among them name the same texts again.
    find /usr/share/common-licenses -type f -print0 | sort -z | xargs -0 cat >"$text_file"
    (($(wc -c <"$text_file") >= 100000)) || fail 'the licences are less than 100 KB: name a FILE'
  fi
  # jq would replace what is not UTF-8, and the counts would differ for no fault of the service.
  iconv -f UTF-8 -t UTF-8 "$text_file" >/dev/null 2>&1 || fail "$text_file: not a UTF-8 text"
}

start() {
  # A cluster that runs before us is somebody's: it is left running.
  "$taskstats" db url --data "$data" >/dev/null 2>&1 || cluster_is_ours=yes
  start_service "$scratch" --data "$data" \
    --listen "${TASKSTATS_LISTEN:-127.0.0.1:0}" --admin "${TASKSTATS_ADMIN:-127.0.0.1:0}" ||
    fail 'the service did not get ready'
  database_url=$("$taskstats" db url --data "$data")
  cat "$scratch/serve.out"
}

# check_text NAME FILE: submits, waits, compares.
check_text() {
  local name=$1 file=$2 answer=$scratch/answer.json code id
  code=$(submit "$file" "$answer")
  [[ $code == 202 ]] || fail "$name: HTTP $code instead of 202: $(cat "$answer")"
  id=$(jq -r .id "$answer")
  await_terminal "$id" "$answer" || fail "$id: not done after $task_patience s: $(cat "$answer")"
  say
  say "$id  $name"
  say "  HTTP  $(jq --sort-keys --compact-output . "$answer")"
  say "  SQL   $(sql_row "$id" | jq --sort-keys --compact-output .)"
  compare "$name" "$answer" "$id" "$file"
}

# compare NAME ANSWER ID FILE: the verdict, one line.
compare() {
  local http sql wc
  http=$(jq -r '"\(.status) \(.words)/\(.bytes)/\(.runes)"' "$2")
  sql=$(sql_counts "$3")
  wc="SUCCEEDED $(count w "$4")/$(count c "$4")/$(count m "$4")"
  if [[ $http == "$wc" && $sql == "$wc" ]]; then
    printf '%-16s  %s   HTTP = SQL = wc\n' "$1" "$wc"
  else
    printf '%-16s  MISMATCH   HTTP: %s   SQL: %s   wc: %s\n' "$1" "$http" "$sql" "${wc#* }"
    ((mismatches += 1))
  fi
}

# count w|c|m FILE: words, bytes or characters.
count() {
  LC_ALL=C.UTF-8 wc "-$1" <"$2"
}

# As JSON and without NULLs, so that it is seen beside the HTTP answer.
sql_row() {
  sql "$1" <<<"
    SELECT json_strip_nulls(row_to_json(task)) FROM (
      SELECT id, status, words, bytes, runes, failure_reason, cancel_requested,
             created_at AT TIME ZONE 'UTC' AS created_at,
             started_at AT TIME ZONE 'UTC' AS started_at,
             finished_at AT TIME ZONE 'UTC' AS finished_at
        FROM go_tasks WHERE id = :'id') AS task"
}

sql_counts() {
  sql "$1" <<<"SELECT status || ' ' || words || '/' || bytes || '/' || runes FROM go_tasks WHERE id = :'id'"
}

# sql ID: the query on stdin, where :'id' stands for the id; bare values out.
sql() {
  psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 --set id="$1" "$database_url"
}

stop() {
  local code=0
  stop_service || code=$?
  ((code == 0)) || fail "the service ended with exit code $code on SIGTERM"
  stop_cluster
  say
  say 'the service ended on SIGTERM with exit code 0; start it again and it goes on from here'
}

# Unless it ran before us, or does not run at all.
stop_cluster() {
  if [[ -n $cluster_is_ours ]] && "$taskstats" db url --data "$data" >/dev/null 2>&1; then
    cluster_is_ours=
    "$taskstats" db stop --data "$data"
  fi
}

explain_what_is_left() {
  is_kept=yes
  say "
still running:
  service      $service_url   pid $service_pid   end it:  kill $service_pid
  admin        $admin_url
  PostgreSQL   psql '$database_url'   end it:  $taskstats db stop --data $data
  logs         $scratch/serve.err"
}

# Nothing that we started stays behind, unless it is to be kept; what the service said is shown after a failure.
clean_up() {
  local code=$?
  set +e
  if [[ -n $service_pid && -z $is_kept ]]; then
    stop_service
  fi
  if ((code != 0)) && [[ -s $scratch/serve.err ]]; then
    say 'the service said:' >&2
    cat "$scratch/serve.err" >&2
  fi
  if [[ -z $is_kept ]]; then
    stop_cluster
    rm -rf "$scratch"
  fi
}

main "$@"
