# shellcheck shell=bash
# Rows 1 to 5 of the matrix: configuration, input, overload, cancel of a queued task. For matrix.sh.

# shellcheck source-path=SCRIPTDIR source=experiment.sh
source "$(dirname "${BASH_SOURCE[0]}")/experiment.sh"

# Ends a row's service as a supervisor would.
end_service() { # NUMBER
  terminate sigterm
  expect "$1" 'the service ends on SIGTERM with exit code 0' 0 "$exit_code"
}

# ------------------------------------------------------------------ 1: configuration

# A service that runs already has both addresses, so that binding before checking would show as another error; the
# database is one to which nobody else connects, and the server logs who does.
row_1() {
  serve serve
  db create 'CREATE DATABASE untouched'
  local url=${database_url%/*}/untouched
  db log-connections 'ALTER SYSTEM SET log_connections = on'
  db reload 'SELECT pg_reload_conf()'
  await 1.1 'control: a connection to the database shows in the log of the server' connection_is_seen "$url"
  local before admin=0.0.0.0:0
  before=$(connections_seen)
  if sabotaged 1.valid-flag; then admin=127.0.0.1:0; fi
  local good=(--dsn "$url" --listen "${service_url#http://}" --admin "${admin_url#http://}")
  refused_flags 1.2 '--admin "0.0.0.0:0"' "${good[@]}" --admin "$admin"
  refused_flags 1.3 '--no-such' "${good[@]}" --no-such 1
  refused_flags 1.4 '--workers "0"' "${good[@]}" --workers 0
  refused_flags 1.5 '--dsn "no dsn"' "${good[@]}" --dsn 'no dsn'
  if sabotaged 1.connects; then psql "${psql_options[@]}" --command 'SELECT 1' "$url" >/dev/null; fi
  note connections "$(connections_seen)"
  expect 1.6 'none of them connects to the database' "$before" "$(<"$step.stdout")"
  http still-served GET "$admin_url/readyz"
  expect 1.7 'who had the addresses has them still' 200 "$http_status"
  end_service 1.8
  db log-no-more 'ALTER SYSTEM RESET log_connections'
}

connection_is_seen() {
  psql "${psql_options[@]}" --command 'SELECT 1' "$1" >/dev/null
  (($(connections_seen) > 0))
}

connections_seen() { server_log | grep -c 'connection authorized: .*database=untouched' || true; }

# refused_flags NUMBER SAID FLAG...: the message names flag and value. A service that starts all the same is ended.
refused_flags() {
  local seen
  run "refused-$1" timeout 10 "$taskstats" serve "${@:3}"
  seen="exit code $exit_code, $(wc -c <"$step.stdout") bytes on stdout, $(grep -cF -- "$2" "$step.stderr" || true) line naming it"
  expect "$1" "$2 is refused" 'exit code 2, 0 bytes on stdout, 1 line naming it' "$seen"
}

# ------------------------------------------------------------------ 2 and 3: input

row_2() {
  serve serve
  local malformed='{"text":' before
  if sabotaged 2.well-formed; then malformed='{"text":"x"}'; fi
  db_count before true
  before=$answer
  http malformed POST "$service_url/tasks" "$malformed"
  expect 2.1 'malformed JSON: 400' '400 application/problem+json' "$http_status $(response_header content-type)"
  http no-object POST "$service_url/tasks" '[]'
  expect 2.2 'JSON that is no submission: 400' 400 "$http_status"
  http unknown GET "$service_url/tasks/task[987654321]"
  expect 2.3 'unknown id: 404' '404 application/problem+json' "$http_status $(response_header content-type)"
  http no-id GET "$service_url/tasks/nobody"
  expect 2.4 'what cannot be an id: 404' 404 "$http_status"
  db_count after true
  expect 2.5 'nothing is stored' "$before" "$answer"
  end_service 2.6
}

row_3() {
  local limit=(--max-words 3)
  if sabotaged 3.no-limit; then limit=(); fi
  serve serve "${limit[@]}"
  local short long
  post short 'Go one'
  short=$task_id
  expect 3.1 'two words: 202' 202 "$http_status"
  post long 'one two three four'
  long=$task_id
  expect 3.2 'four words, over the limit: 202, too' 202 "$http_status"
  await 3.3 'the short one becomes SUCCEEDED' status_is "$short" SUCCEEDED
  get short "$short"
  expect 3.4 'HTTP tells its counts' 'SUCCEEDED 2/6/6' "$(told)"
  db_task short "$short"
  expect 3.5 'so does the table' 'SUCCEEDED 2/6/6' "$answer"
  await 3.6 'the long one becomes FAILED' status_is "$long" FAILED
  get long "$long"
  expect 3.7 'HTTP tells no counts and the limit' \
    'FAILED 0/0/0 text has 4 words, more than the 3 that --max-words allows' "$(told)"
  local told
  told=$(told)
  db_task long "$long"
  expect 3.8 'so does the table' "$told" "$answer"
  end_service 3.9
}

# ------------------------------------------------------------------ 4: overload

row_4() {
  serve serve --workers 1 --queue 1
  open_session
  sabotaged 4.gate-missing || build_gate build-gate RUNNING
  local number
  for ((number = 1; number <= repeats; number++)); do overload "$number"; done
  sabotaged 4.gate-missing || remove_gate remove-gate
  close_session
  end_service 4.6
}

# One repeat: three submissions while the worker's claim is held. Few processes, for there are many repeats.
overload() {
  local common=("${curl_options[@]}" --dump-header - --header 'Content-Type: application/json') url=$service_url/tasks
  shut_gate
  begin_step "overload-$1"
  run_step curl "${common[@]}" --data "{\"text\":\"runs $1\"}" --output "$step.first.body" "$url" \
    --next "${common[@]}" --data "{\"text\":\"waits $1\"}" --output "$step.second.body" "$url" \
    --next "${common[@]}" --data "{\"text\":\"refused $1\"}" --output "$step.body" "$url"
  local codes retry_after
  read -r codes retry_after < <(codes_and_retry_after)
  expect 4.1 'one runs, one waits, the third is refused' 202/202/503 "$codes"
  expect_from 4.2 'Retry-After says when to come again' 1 60 "$retry_after"
  expect 4.3 'the refusal says that nothing was done' none "$(member outcome "$step.body")"
  if sabotaged 4.row-kept; then
    ask "INSERT INTO go_tasks (id, text, status) VALUES ('kept-$1', 'refused $1', 'SUCCEEDED')"
  fi
  ask "SELECT count(*) FROM go_tasks WHERE text = 'refused $1'"
  expect 4.4 'no row of the third' 0 "$answer"
  open_gate
  local body id ended=yes
  for body in "$step.first.body" "$step.second.body" "$step.body"; do
    id=$(member id "$body")
    if [[ -n $id ]]; then
      ledger "$id" QUEUED
      await_succeeded "$id" || ended=no
    fi
  done
  expect 4.5 'what was accepted ends as SUCCEEDED' yes "$ended"
}

# The statuses of all answers in one step, and the last one's Retry-After.
codes_and_retry_after() {
  tr -d '\r' <"$step.stdout" | awk '
    /^HTTP\// { codes = codes (codes ? "/" : "") $2; after = "" }
    tolower($1) == "retry-after:" { after = $2 }
    END { print codes, after }'
}

# member NAME FILE: a string in a JSON object, without a process of jq.
member() {
  local body
  body=$(<"$2")
  [[ ! $body =~ \"$1\":\"([^\"]*)\" ]] || say "${BASH_REMATCH[1]}"
}

# Asks without pauses: a look is a process, which is pause enough.
await_succeeded() {
  local looks
  for ((looks = 0; looks < 500; looks++)); do
    if [[ $(request "$scratch/look" "/tasks/$1") == 200 && $(member status "$scratch/look") == SUCCEEDED ]]; then
      ledger "$1" SUCCEEDED
      return
    fi
  done
  return 1
}

# ------------------------------------------------------------------ 5: cancel of a queued task

row_5() {
  serve serve --workers 1
  open_session
  shut_gate
  sabotaged 5.gate-missing || build_gate build-gate RUNNING
  local first second
  post first 'first'
  first=$task_id
  await 5.1 'the claim of the first stands at the gate' gate_is_reached
  post second 'never to be seen'
  second=$task_id
  cancel cancel "$second"
  expect 5.2 'cancel of the queued one: 202, canceled' '202 canceled' "$http_status $(of_body .cancel)"
  cancel cancel-again "$second"
  expect 5.3 'once more: 409, too late' '409 too_late' "$http_status $(of_body .cancel)"
  open_gate
  remove_gate remove-gate
  await 5.4 'the first becomes SUCCEEDED' status_is "$first" SUCCEEDED
  get first "$first"
  cancel cancel-finished "$first"
  expect 5.5 'cancel of a finished one: 409, too late' '409 too_late' "$http_status $(of_body .cancel)"
  db_task first "$first"
  expect 5.6 'it stays what it is' 'SUCCEEDED 1/5/5' "$answer"
  get second "$second"
  expect 5.7 'HTTP tells of the cancelled one: no counts' 'CANCELED 0/0/0' "$(told)"
  # What a worker never claimed no analyser ever saw.
  db second "SELECT status, words, bytes, runes, lease_epoch, lease_owner, started_at FROM go_tasks WHERE id = '$second'"
  expect 5.8 'the table: no counts, never claimed' 'CANCELED|0|0|0|0||' "$answer"
  close_session
  end_service 5.9
}
