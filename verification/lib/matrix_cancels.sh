# shellcheck shell=bash
# Row 13 of the matrix: cancels of running tasks, one at a gate and many at random. For matrix.sh.

# shellcheck source-path=SCRIPTDIR source=experiment.sh
source "$(dirname "${BASH_SOURCE[0]}")/experiment.sh"

row_13() {
  cancel_at_a_gate
  random_cancels
}

# The analyser holds the task and does not look whether it should stop until the gate opens.
cancel_at_a_gate() {
  export GATE=$scratch/analyser-gate GATED=$gated
  sabotaged 13.gate-missing || : >"$GATE"
  taskstats=$repository/verification/lib/gated-serve.sh serve serve --workers 1
  local id waiting
  post running 'Go one'
  id=$task_id
  await 13.1 'the analyser holds the task: RUNNING' status_is "$id" RUNNING
  post waiting 'Go one'
  waiting=$task_id
  cancel cancel "$id"
  expect 13.2 'cancel: 202, requested' '202 requested' "$http_status $(of_body .cancel)"
  if sabotaged 13.untold; then db sabotage "UPDATE go_tasks SET cancel_requested = false WHERE id = '$id'"; fi
  get requested "$id"
  expect 13.3 'HTTP tells RUNNING, and that it was asked to stop' 'RUNNING true' "$(of_body '"\(.status) \(.cancel_requested)"')"
  db requested "SELECT status, cancel_requested, words FROM go_tasks WHERE id = '$id'"
  expect 13.4 'so does the table' 'RUNNING|t|0' "$answer"
  cancel cancel-again "$id"
  expect 13.5 'cancel again: 202, requested' '202 requested' "$http_status $(of_body .cancel)"
  db_task waiting "$waiting"
  expect 13.6 'its worker is not free: the next one waits' 'QUEUED 0/0/0' "$answer"
  rm -f "$GATE"
  await 13.7 'the gate opens, the analyser stops: CANCELED' status_is "$id" CANCELED
  get canceled "$id"
  expect 13.8 'no counts' 'CANCELED 0/0/0' "$(told)"
  db_task canceled "$id"
  expect 13.9 'so does the table' 'CANCELED 0/0/0' "$answer"
  cancel too-late "$id"
  expect 13.10 'cancel once more: 409' '409 too_late' "$http_status $(of_body .cancel)"
  await 13.11 'now the next one is counted' status_is "$waiting" SUCCEEDED
  get waiting "$waiting"
  end_service 13.12
}

# Fifty tasks for each repeat, and a cancel of each about when it is claimed, counted and finished. What each cancel was told
# must be what became of its task.
random_cancels() {
  local count=$((repeats * 50)) first seed=$RANDOM replies=$scratch/replies
  serve serve-random --workers 8 --queue "$count"
  db first-number 'SELECT last_value + is_called::int FROM go_task_numbers'
  first=$answer
  mkdir "$replies"
  begin_step "random-cancels-seed-$seed"
  random_requests "$first" "$count" "$seed" "$replies" >"$step.curlrc"
  run_step curl --silent --parallel --parallel-max 16 --config "$step.curlrc"
  expect 13.13 'so many random submissions are accepted' "$count" "$(cat "$replies"/post-* | grep -o QUEUED | wc -l)"
  await 13.14 'all of them end' all_have_ended "$first"
  note replies "$(cd "$replies" && jq --raw-output '"\(input_filename | ltrimstr("cancel-")) \(.cancel // .status)"' cancel-*)"
  cp "$step.stdout" "$scratch/told"
  if sabotaged 13.revived; then
    db sabotage "UPDATE go_tasks SET status = 'SUCCEEDED' WHERE id =
                   (SELECT max(id) FROM go_tasks WHERE status = 'CANCELED' AND go_task_number(id) >= $first)"
  fi
  db states "SELECT go_task_number(id) || ' ' || status FROM go_tasks WHERE go_task_number(id) >= $first"
  cp "$step.stdout" "$scratch/states"
  say "random cancels: $(awk '{ print $2 }' "$scratch/told" | sort | uniq -c | paste -s -d ' ' | tr -s ' ')"
  expect 13.15 'each cancel is answered in one of the four ways' "$count" \
    "$(grep -cE ' (canceled|requested|too_late|404)$' "$scratch/told" || true)"
  expect 13.16 'told canceled: the task is CANCELED' '' "$(otherwise canceled CANCELED)"
  expect 13.17 'told requested: the task is CANCELED' '' "$(otherwise requested CANCELED)"
  expect 13.18 'told too late: the task is SUCCEEDED' '' "$(otherwise too_late SUCCEEDED)"
  expect 13.19 'told that there is none (yet): the task is SUCCEEDED' '' "$(otherwise 404 SUCCEEDED)"
  expect 13.20 'cancels came before, while and after a task ran' 'canceled requested too_late' \
    "$(awk '$2 != 404 { print $2 }' "$scratch/told" | sort -u | paste -s -d ' ')"
  tell_all "$first" "$count"
  end_service 13.21
}

# random_requests FIRST COUNT SEED DIRECTORY: what curl reads. Numbers are given in order, so that a cancel can be sent before
# the answer with the number is there; it comes a random number of requests after its submission.
random_requests() {
  awk -v first="$1" -v count="$2" -v seed="$3" -v directory="$4" -v most_after=12 -v url="$service_url/tasks" '
    BEGIN {
      srand(seed)
      for (n = 0; n < count; n++) {
        post(n)
        at = n + int(rand() * most_after)
        due[at] = due[at] " " n
        cancel_all(due[n])
      }
      for (; n < count + most_after; n++) cancel_all(due[n])
    }
    function common(output) {
      # Each request but the first begins with this: options are forgotten with it.
      if (sent++) print "next"
      printf "silent\nshow-error\nnoproxy = \"*\"\ngloboff\nmax-time = 30\noutput = \"%s/%s\"\n", directory, output
    }
    function post(n) {
      common("post-" n)
      printf "header = \"Content-Type: application/json\"\ndata = \"{\\\"text\\\":\\\"random %d\\\"}\"\n", n
      printf "url = \"%s\"\n", url
    }
    function cancel_all(list, numbers, amount, i) {
      amount = split(list, numbers, " ")
      for (i = 1; i <= amount; i++) {
        common("cancel-" first + numbers[i])
        printf "request = POST\nurl = \"%s/task[%d]/cancel\"\n", url, first + numbers[i]
      }
    }'
}

all_have_ended() {
  [[ $(psql "${psql_options[@]}" --command "SELECT count(*) FROM go_tasks WHERE go_task_number(id) >= $1
         AND status IN ('QUEUED', 'RUNNING')" "$database_url") == 0 ]]
}

# otherwise TOLD STATE: the numbers of the tasks that were told so and are in another state.
otherwise() {
  awk -v told="$1" -v state="$2" '
    NR == FNR { is[$1] = $2; next }
    $2 == told && is[$1] != state { print $1, is[$1] }' "$scratch/states" "$scratch/told" | paste -s -d ' '
}

# tell_all FIRST COUNT: asks for each, for the books.
tell_all() {
  local number urls=()
  for ((number = $1; number < $1 + $2; number++)); do urls+=("$service_url/tasks/task[$number]"); done
  run tell-all curl "${curl_options[@]}" "${urls[@]}"
  jq --raw-output '"\(.id)\t\(.status)"' "$step.stdout" >>"$scratch/ledger"
}
