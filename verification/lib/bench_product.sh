# shellcheck shell=bash
# What the service does: T1 to T5, and what that costs (T7, T8). Source it.

# shellcheck source-path=SCRIPTDIR source=bench_limits.sh
source "$(dirname "${BASH_SOURCE[0]}")/bench_limits.sh"

# Set by bench.sh.
tasks=    # posted one by one
backlog=  # QUEUED rows drained
lines=    # rows posted in batches
waits=    # seconds of waiting POSTs
crowd=    # QUEUED rows for the memory

load=$target/release/examples/load
clients=64
rate=50
batch_clients=8
# More than can ever wait, so that nothing is refused: T1, T3 and T5 measure acceptance, not refusals.
roomy_queue=1000000

# Flags for every serve, for who tunes: BENCH_SERVE='--workers 4'.
read -ra extra_flags <<<"${BENCH_SERVE-}"

# serve NAME FLAG...: the service on the database in use; its output in $scratch/NAME.
serve() {
  mkdir -p "$scratch/$1"
  start_service "$scratch/$1" --dsn "$database_url" --listen 127.0.0.1:0 --admin 127.0.0.1:0 "${@:2}" "${extra_flags[@]}" ||
    fail "the service did not get ready: $(tail -n 3 "$scratch/$1/serve.err")"
}

end_service() {
  local code=0
  stop_service || code=$?
  ((code == 0)) || fail "the service ended with exit code $code: $(tail -n 3 "$service_log/serve.err")"
}

# For one whose backlog nobody needs.
abandon_service() {
  local pid=$service_pid
  service_pid=
  kill -KILL "$pid"
  { wait "$pid" || true; } 2>/dev/null
}

listen_address() { say "${service_url#http://}"; }

# run_load MODE FLAG...: its report, read by load_value.
run_load() { "$load" "$@" >"$scratch/load" || fail "load $1 failed"; }

load_value() { tr ' ' '\n' <"$scratch/load" | sed -n "s/^$1=//p"; }
load_ms() { awk -v us="$(load_value "$1")" 'BEGIN { printf "%.3f\n", us / 1000 }'; }

# rate_until_finished FIRST_NUMBER FROM_US: tasks from that number on, a second, from that moment to the last finished_at.
rate_until_finished() {
  sql "SELECT round(count(*) / (extract(epoch FROM max(finished_at)) - $2 / 1e6))
         FROM go_tasks WHERE go_task_number(id) >= $1 AND status = 'SUCCEEDED'"
}

# T1 and T7: one POST per task, until all are SUCCEEDED.
product_posts() {
  local first wal service postgresql
  prepare_table
  serve posts --queue "$roomy_queue"
  first=$(next_number)
  wal=$(wal_position)
  service=$(cpu_of "$service_pid")
  postgresql=$(cpu_of_postgresql)
  run_load post --clients "$clients" --tasks "$tasks" "$(listen_address)"
  await_the_end
  record T7.wal "$(per_thousand "$wal" "$(wal_position)" "$tasks")" 'bytes/1000'
  record T7.cpu_service "$(per_thousand "$service" "$(cpu_of "$service_pid")" "$tasks")" 's/1000'
  record T7.cpu_postgresql "$(per_thousand "$postgresql" "$(cpu_of_postgresql)" "$tasks")" 's/1000'
  record T7.cpu_load "$(per_thousand 0 "$(load_value cpu_ms)" "$((tasks * 1000))")" 's/1000'
  record T1.rate "$(rate_until_finished "$first" "$(load_value begin_us)")" '/s'
  record T1.posts "$(awk -v n="$tasks" -v s="$(load_value seconds)" 'BEGIN { printf "%.0f\n", n / s }')" '/s'
  record T1.p50 "$(load_ms p50_us)" ms
  record T1.p99 "$(load_ms p99_us)" ms
  record T1.refused "$(load_value refused)" ''
  end_service
}

# T2: rows that were there before the service.
product_drain() {
  local first ready
  prepare_table
  first=$(next_number)
  insert_queued "$backlog"
  sql 'ANALYZE go_tasks'
  sql 'CHECKPOINT'
  serve drain
  # The line itself, not when we saw it; or the first claim, if that was before.
  ready=$(stat --format %.6Y "$service_log/serve.out")
  await_the_end
  record T2.rate "$(sql "
    SELECT round(count(*) / extract(epoch FROM max(finished_at) - least(min(started_at), to_timestamp($ready))))
      FROM go_tasks WHERE go_task_number(id) >= $first AND status = 'SUCCEEDED'")" 'rows/s'
  end_service
}

# between COLUMN COLUMN: the median milliseconds from one time of a task to another, of those with numbers from $first on.
between() {
  sql "SELECT round((1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM $2 - $1)))::numeric, 3)
         FROM go_tasks WHERE go_task_number(id) >= $first"
}

# T3: POSTs that wait for the end of their task, at fixed times.
product_waits() {
  local first
  prepare_table
  serve waits --queue "$roomy_queue"
  # The first of all connections and statements is made before.
  run_load wait --clients 4 --tasks 50 --rate "$rate" "$(listen_address)"
  first=$(next_number)
  run_load wait --clients "$clients" --tasks "$((rate * waits))" --rate "$rate" "$(listen_address)"
  record T3.to_claim "$(between created_at started_at)" ms
  record T3.to_end "$(between started_at finished_at)" ms
  record T3.p50 "$(load_ms p50_us)" ms
  record T3.p99 "$(load_ms p99_us)" ms
  record T3.unfinished "$(load_value unfinished)" ''
  end_service
}

# T4, on the table that limit_selects has left.
product_reads() {
  serve reads
  ROWS=$(finished_rows) run_wrk "$clients" "$service_url" --script "$repository/verification/lib/bench_get.lua"
  record T4.get "$(wrk_rate)" '/s'
  if [[ $state == '' ]]; then
    run_wrk "$admin_clients" "$admin_url/healthz"
    record T4.healthz "$(wrk_rate)" '/s'
  fi
  end_service
}

# Of the tasks that came after the table was prepared.
ended_rows() { sql "SELECT count(*) FROM go_tasks WHERE status = 'SUCCEEDED' AND go_task_number(id) >= $small_rows"; }

# T5: what is accepted while the workers work, or with one worker, nearly alone. product_batches NAME [FLAG...]
product_batches() {
  prepare_table
  serve batches --queue "$roomy_queue" "${@:2}"
  run_load batch --clients "$batch_clients" --tasks "$lines" --lines 100 "$(listen_address)"
  record "T5.$1" "$(awk -v n="$lines" -v s="$(load_value seconds)" 'BEGIN { printf "%.0f\n", n / s }')" 'rows/s'
  record "T5.$1.ended" "$(awk -v n="$(ended_rows)" -v s="$(load_value seconds)" 'BEGIN { printf "%.0f\n", n / s }')" 'rows/s'
  record "T5.$1.refused" "$(load_value refused)" ''
  abandon_service
}

commits() { sql 'SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()'; }

# T10: T1's load, spread over COUNT instances in lease mode. NAME COUNT
product_leases() {
  local pids=() addresses=() first number commits
  prepare_table
  for ((number = 1; number <= $2; number++)); do
    serve "lease-$number" --lease 30s --queue "$roomy_queue"
    pids+=("$service_pid")
    # For clean_up, should we fail: service_pid is only the last of them.
    other_pids=("${pids[@]}")
    addresses+=("$(listen_address)")
  done
  first=$(next_number)
  commits=$(commits)
  run_load post --clients "$clients" --tasks "$tasks" "${addresses[@]}"
  await_the_end
  record "T10.$1" "$(rate_until_finished "$first" "$(load_value begin_us)")" '/s'
  for service_pid in "${pids[@]}"; do end_service; done
  other_pids=()
  # A session tells what it did at its end at the latest.
  record "T10.$1.commits" "$(per_thousand "$commits" "$(commits)" "$tasks")" '/1000'
}

# Services besides service_pid.
other_pids=()

stop_other_services() {
  for service_pid in "${other_pids[@]}"; do stop_service; done
}

# T8: a service as it is by default.
product_memory() {
  prepare_table
  serve memory
  run_load post --clients "$clients" --tasks "$tasks" "$(listen_address)"
  record T8.clients "$(memory_peak "$service_pid")" MiB
  record T8.refused "$(load_value refused)" ''
  await_the_end
  end_service
  prepare_table
  insert_queued "$crowd"
  serve memory
  # Long enough to see what it keeps of a backlog.
  sleep "$seconds"
  record T8.backlog "$(memory_peak "$service_pid")" MiB
  end_service
}
