# shellcheck shell=bash
# The limits that the product is compared with: what PostgreSQL does for pgbench, on the same tables, prepared; and what a
# stock tiny_http does. Source it.

# shellcheck source-path=SCRIPTDIR source=bench_cluster.sh
source "$(dirname "${BASH_SOURCE[0]}")/bench_cluster.sh"

# Set by bench.sh: length of a measurement.
seconds=

constant=$target/release/examples/constant

# run_pgbench NAME CLIENTS [FLAG...]: runs sql/bench-NAME.sql; its report is in $scratch/pgbench.
run_pgbench() {
  local threads=2
  (($2 > 1)) || threads=1
  pgbench --no-vacuum --protocol prepared --client "$2" --jobs "$threads" --time "$seconds" \
    --file "$repository/verification/sql/bench-$1.sql" "${@:3}" "$database_url" >"$scratch/pgbench" 2>"$scratch/pgbench.err" ||
    fail "pgbench: $(cat "$scratch/pgbench.err")"
}

# pgbench_rate ROWS: rows a second, with so many in a transaction of pgbench's.
pgbench_rate() { awk -v rows="$1" '/^tps/ { printf "%.0f\n", $3 * rows }' "$scratch/pgbench"; }

# L1: insert, claim, finish of single rows; at 32 clients also its costs.
limit_cycles() {
  local clients=$1 wal cpu transactions
  prepare_table
  wal=$(wal_position)
  cpu=$(cpu_of_postgresql)
  run_pgbench cycle "$clients"
  record "L1.c$clients" "$(pgbench_rate 1)" '/s'
  [[ $clients == 32 ]] || return 0
  transactions=$(awk '/^number of transactions actually processed/ { print $NF + 0 }' "$scratch/pgbench")
  record L1.wal "$(per_thousand "$wal" "$(wal_position)" "$transactions")" 'bytes/1000'
  record L1.cpu_postgresql "$(per_thousand "$cpu" "$(cpu_of_postgresql)" "$transactions")" 's/1000'
}

# per_thousand BEFORE AFTER COUNT
per_thousand() {
  awk -v before="$1" -v after="$2" -v count="$3" 'BEGIN {
    share = (after - before) * 1000 / count
    printf (share < 100 ? "%.3f\n" : "%.0f\n"), share
  }'
}

# The same for many rows a statement; L2 has a hundred. NAME CLIENTS ROWS
limit_batches() {
  prepare_table
  run_pgbench cycle-rows "$2" --define rows="$3"
  record "$1" "$(pgbench_rate "$3")" 'rows/s'
}

# One client alone: how long a cycle takes, by the median as for the product. FLAG: --rate.
limit_latency() {
  prepare_table
  rm -f "$scratch"/cycles.*
  run_pgbench cycle 1 --log --log-prefix="$scratch/cycles" "${@:2}"
  record "$1" "$(cut -d ' ' -f 3 "$scratch"/cycles.* | sort -n | awk '
    { micros[NR] = $1 } END { printf "%.3f\n", micros[int((NR + 1) / 2)] / 1000 }')" ms
}

# limit_inserts NAME CLIENTS ROWS_A_STATEMENT
limit_inserts() {
  prepare_table
  run_pgbench "$1" "$2"
  record "$1.c$2" "$(pgbench_rate "$3")" 'rows/s'
}

# Reads of random finished rows.
limit_selects() {
  run_pgbench select 32 --define rows="$(finished_rows)"
  record select.c32 "$(pgbench_rate 1)" '/s'
}

# Finished rows that were there first: the numbers from 0.
finished_rows() {
  if [[ $state == '' ]]; then say "$small_rows"; else say "$large_rows"; fi
}

# A constant to as many clients as GET /healthz has, from stock tiny_http, or from it with a door in front.
# limit_constant NAME [behind-a-door]
limit_constant() {
  local address
  # The address of the round before must not be taken for this one's.
  rm -f "$scratch/constant"
  TMPDIR=$scratch "$constant" "${@:2}" >"$scratch/constant" &
  constant_pid=$!
  wait_until 10 test -s "$scratch/constant"
  address=$(<"$scratch/constant")
  run_wrk "$admin_clients" "http://$address/"
  end_constant
  record "$1.c$admin_clients" "$(wrk_rate)" '/s'
}

constant_pid=
end_constant() {
  [[ -n $constant_pid ]] || return 0
  kill "$constant_pid"
  { wait "$constant_pid" || true; } 2>/dev/null
  constant_pid=
}

# Clients of the admin listener: it takes 32 connections, and wrk tries one before it begins.
admin_clients=30

# run_wrk CLIENTS URL [FLAG...]: its report is in $scratch/wrk.
run_wrk() {
  wrk --threads 1 --connections "$1" --duration "${seconds}s" --latency "${@:3}" "$2" >"$scratch/wrk"
  if grep -E 'Socket errors|Non-2xx' "$scratch/wrk"; then
    say "  (of $2: not all was answered with 2xx)"
  fi
}

wrk_rate() { awk '/^Requests\/sec/ { printf "%.0f\n", $2 }' "$scratch/wrk"; }
