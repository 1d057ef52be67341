#!/usr/bin/env bash
# How large and how quick to start the service is: size of the binary, memory when idle and after 10,000 tasks over HTTP, and
# the time to `ready` with an empty table against one with 1,000,000 finished rows, in one run. It judges nothing.
# shellcheck disable=SC2119 # what is measured is the service without any flags
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"
# shellcheck source-path=SCRIPTDIR source=lib/service.sh
source "$here/lib/service.sh"

rounds=7
finished_rows=1000000
tasks=10000

rss_mib() { awk '/^VmRSS/ { printf "%.1f", $2 / 1024 }' "/proc/$service_pid/status"; }

# Milliseconds from the start of the process to its ready line.
time_to_ready() {
  local begin end
  begin=$(date +%s%N)
  start_in_scratch
  end=$(date +%s%N)
  stop_service
  printf '%s\n' $(((end - begin) / 1000000))
}

median_of_starts() {
  local round
  for ((round = 0; round < rounds; round++)); do time_to_ready; done | sort -n | sed -n "$((rounds / 2 + 1))p"
}

submit_tasks() {
  local body='{"text":"the quick brown fox jumps over the lazy dog"}' urls
  mapfile -t urls < <(yes "$service_url/tasks" | head -n 100)
  # 503 while the queue is full is an answer, too: it is sent again.
  until [[ $(scratch_sql --command 'SELECT count(*) FROM go_tasks') -ge $tasks ]]; do
    seq 16 | xargs -P 16 -I{} curl --silent --noproxy '*' --header 'Content-Type: application/json' \
      --data "$body" "${urls[@]}" >/dev/null
  done
}

no_task_is_open() { [[ $(scratch_sql --command "SELECT count(*) FROM go_tasks WHERE status IN ('QUEUED', 'RUNNING')") == 0 ]]; }

use_scratch
setup_for_running
cd "$repository"
quietly cargo build --release --locked
say "binary                                   $(($(stat --format %s "$taskstats") / 1024)) KiB"

start_in_scratch
say "resident when idle                       $(rss_mib) MiB"
submit_tasks
wait_until 120 no_task_is_open || fail 'the tasks did not end'
say "resident after $(scratch_sql --command 'SELECT count(*) FROM go_tasks') tasks              $(rss_mib) MiB"
stop_service

scratch_sql --command 'TRUNCATE go_tasks'
empty=$(median_of_starts)
scratch_sql --command "INSERT INTO go_tasks (id, text, status, words, bytes, runes, finished_at)
     SELECT 'task[' || n || ']', 'Go one', 'SUCCEEDED', 2, 6, 6, clock_timestamp() FROM generate_series(1, $finished_rows) n"
full=$(median_of_starts)
say "to ready, empty table (median of $rounds)      $empty ms"
say "to ready, $finished_rows finished rows        $full ms"
say "ratio                                    $(awk "BEGIN { printf \"%.2f\", $full / $empty }")"
