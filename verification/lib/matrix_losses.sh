# shellcheck shell=bash
# Rows 6 to 8 of the matrix: the database goes and comes back, SIGTERM, SIGKILL. For matrix.sh.

# shellcheck source-path=SCRIPTDIR source=experiment.sh
source "$(dirname "${BASH_SOURCE[0]}")/experiment.sh"

# Database timeout plus one second.
most_ms_without_database=3000
# From the database's return to the first good answers.
most_ms_to_return=2000
# From SIGKILL to the next ready line.
most_ms_to_restart=5000

# ------------------------------------------------------------------ 6: PostgreSQL stopped, later started

row_6() {
  serve serve
  local old pid=$service_pid number
  post before 'Go one'
  old=$task_id
  await 6.1 'a task becomes SUCCEEDED' status_is "$old" SUCCEEDED
  get before "$old"
  sabotaged 6.server-runs || run pg-stop "$taskstats" db stop --data "$data"
  expect 6.2 'PostgreSQL is stopped' 0 "$exit_code"
  for number in 1 2 3; do
    get "lost-get-$number" "$old"
    expect 6.3 'GET without database: 503' 503 "$http_status"
    expect_from 6.4 'within the database timeout and a second, ms' 0 "$most_ms_without_database" "$http_ms"
    post "lost-post-$number" 'db lost'
    expect 6.5 'POST without database: 503' 503 "$http_status"
    expect_from 6.6 'within the database timeout and a second, ms' 0 "$most_ms_without_database" "$http_ms"
  done
  http lost-health GET "$admin_url/healthz"
  expect 6.7 'the process is healthy' 200 "$http_status"
  await 6.8 'it says that it is not ready' admin_says 503 /readyz
  http lost-ready GET "$admin_url/readyz"
  expect 6.9 'and why' yes "$([[ $(of_body '.reasons[0]') == *database* ]] && say yes)"

  run pg-start "$taskstats" db start --data "$data"
  expect 6.10 'PostgreSQL is started' 0 "$exit_code"
  if sabotaged 6.restarted; then
    terminate sabotage
    serve sabotage
  fi
  local since
  since=$(milliseconds)
  await 6.11 'it says that it is ready again' admin_says 200 /readyz
  get found-again "$old"
  expect 6.12 'the old id: 200, as before' '200 SUCCEEDED 2/6/6' "$http_status $(told)"
  post again 'back again'
  expect 6.13 'a new text: 202' 202 "$http_status"
  expect_from 6.14 'all that after the return of PostgreSQL, ms' 0 "$most_ms_to_return" $(($(milliseconds) - since))
  await 6.15 'and it is counted' status_is "$task_id" SUCCEEDED
  get again "$task_id"
  if sabotaged 6.row-kept; then
    db sabotage "INSERT INTO go_tasks (id, text, status) VALUES ('kept', 'db lost', 'SUCCEEDED')"
  fi
  db_count lost "text = 'db lost'"
  expect 6.16 'nothing is stored of what was refused' 0 "$answer"
  expect 6.17 'it is the same process' "$pid" "$service_pid"
  end_service 6.18
}

# admin_says STATUS PATH: one look without evidence.
admin_says() {
  [[ $(curl "${curl_options[@]}" --output /dev/null --write-out '%{http_code}' "$admin_url$2") == "$1" ]]
}

# ------------------------------------------------------------------ 7: SIGTERM

row_7() {
  serve serve --workers 1
  local running waiting pid=$service_pid public=${service_url#http://} admin=${admin_url#http://}
  open_session
  shut_gate
  sabotaged 7.gate-missing || build_gate build-gate SUCCEEDED
  post running 'work in hand'
  running=$task_id
  post waiting 'work in the channel'
  waiting=$task_id
  await 7.1 'the finish of the first stands at the gate' gate_is_reached
  if sabotaged 7.killed; then kill -KILL "$pid"; else kill -TERM "$pid"; fi
  await 7.2 'the public port is free' is_refused "$public"
  await 7.3 'the admin port is free' is_refused "$admin"
  db_task running "$running"
  expect 7.4 'the work in hand is not given up' 'RUNNING 0/0/0' "$answer"
  expect 7.5 'the process waits for it' yes "$(kill -0 "$pid" 2>/dev/null && say yes)"
  open_gate
  remove_gate remove-gate
  terminate_wait wait
  expect 7.6 'then it ends with exit code 0' 0 "$exit_code"
  db_task running "$running"
  expect 7.7 'after the work in hand was done' 'SUCCEEDED 3/12/12' "$answer"
  db_task waiting "$waiting"
  expect 7.8 'and what it had taken on' 'SUCCEEDED 4/19/19' "$answer"
  serve restart --listen "$public" --admin "$admin"
  expect 7.9 'the next start has both ports' "http://$public http://$admin" "$service_url $admin_url"
  get running "$running"
  expect 7.10 'the old id: 200, SUCCEEDED' '200 SUCCEEDED 3/12/12' "$http_status $(told)"
  get waiting "$waiting"
  http ready GET "$admin_url/readyz"
  expect 7.11 'it is ready' 200 "$http_status"
  close_session
  end_service 7.12
}

# Nobody listens there.
is_refused() {
  local code=0
  curl "${curl_options[@]}" --output /dev/null "http://$1/" 2>/dev/null || code=$?
  ((code == 7))
}

# terminate_wait NAME: the end of a service that was told to end.
terminate_wait() {
  begin_step "$1"
  exit_code=0
  wait "$service_pid" 2>/dev/null || exit_code=$?
  service_pid=
  say "$exit_code" >"$step.exit"
}

# ------------------------------------------------------------------ 8: SIGKILL and immediate restart

row_8() {
  serve serve --workers 1
  local id since
  open_session
  shut_gate
  sabotaged 8.gate-missing || build_gate build-gate SUCCEEDED
  post running 'dies running'
  id=$task_id
  await 8.1 'its finish stands at the gate' gate_is_reached
  get running "$id"
  expect 8.2 'HTTP tells RUNNING' 'RUNNING 0/0/0' "$(told)"
  if sabotaged 8.swallowed; then db_script sabotage swallow.sql status=FAILED; fi
  since=$(milliseconds)
  kill_service sigkill
  expect 8.3 'the wait status is that of SIGKILL' 137 "$exit_code"
  serve restart --workers 1
  expect_from 8.4 'ready again, with the gate still shut, ms' 0 "$most_ms_to_restart" $(($(milliseconds) - since))
  get running "$id"
  expect 8.5 'HTTP tells that it failed, and why' \
    'FAILED 0/0/0 process exited before worker completion' "$(told)"
  db_task running "$id"
  expect 8.6 'so does the table' 'FAILED 0/0/0 process exited before worker completion' "$answer"
  open_gate
  remove_gate remove-gate
  close_session
  end_service 8.7
}
