#!/usr/bin/env bash
# How fast the service is, beside what PostgreSQL, tiny_http, wc and reading allow anyone, measured in the same run, turn by
# turn, on a cluster of its own with PostgreSQL's default durability. It judges each row of the table (T1 to T10) and fails for
# none: exit code 0 says that all was measured.
#
# Installs what is missing (Debian, Ubuntu).

set -Eeuo pipefail

usage='usage: verification/bench.sh [--only T1,T4] [--rounds N] [--quick] [--rows N] [--dir DIR]

  --only LIST  only these of T1 to T10, and the limits they are compared with; T6 brings T1 to T4, T10 brings T1
  --rounds N   rounds, of which the median counts (3)
  --quick      small numbers and one round: to see which way a change goes
  --rows N     finished rows of T6 (10000000; with --quick 200000)
  --dir DIR    where the cluster is; a disk, not memory (/var/tmp)

The table and all measurements are left in evidence/bench/. BENCH_SERVE has flags for every serve.'

here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"
# shellcheck source-path=SCRIPTDIR source=lib/bench_large.sh
source "$here/lib/bench_large.sh"
# shellcheck source-path=SCRIPTDIR source=lib/bench_count.sh
source "$here/lib/bench_count.sh"

only=T1,T2,T3,T4,T5,T6,T7,T8,T9,T10
is_quick=
directory=/var/tmp

main() {
  read_arguments "$@"
  choose_sizes
  setup
  trap clean_up EXIT
  trap 'printf "%s: line %s: a command ended with %s\n" "${BASH_SOURCE[0]}" "$LINENO" "$?" >&2' ERR
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # Run by root, PostgreSQL runs as somebody else, who has to get to the data directory in it.
  scratch=$(mktemp --directory "$directory/taskstats-bench.XXXXXX")
  chmod 711 "$scratch"
  report=$repository/evidence/bench
  mkdir -p "$report"
  results=$report/measurements.tsv
  : >"$results"
  start_cluster
  print_circumstances | tee "$report/circumstances.txt"
  say
  measure
  say
  print_table | tee "$report/table.txt"
}

read_arguments() {
  while (($#)); do
    case $1 in
      --quick) is_quick=yes ;;
      --only | --rounds | --rows | --dir)
        (($# > 1)) || fail "$1 needs a value; see --help"
        set_argument "$1" "$2"
        shift
        ;;
      --help | -h)
        say "$usage"
        exit
        ;;
      *) fail "unknown argument $1; see --help" ;;
    esac
    shift
  done
}

set_argument() {
  case $1 in
    --only)
      [[ ,$2 =~ ^(,T([1-9]|10))+$ ]] || fail "--only $2: a list such as T1,T4; see --help"
      only=$2
      ;;
    --rounds) rounds=$(number_of "$1" "$2") ;;
    --rows) large_rows=$(number_of "$1" "$2") ;;
    --dir) directory=$(realpath -- "$2") ;;
  esac
}

number_of() {
  [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 $2: a number from 1 on"
  say "$2"
}

# shellcheck disable=SC2034 # for the measurements
choose_sizes() {
  if [[ -n $is_quick ]]; then
    rounds=${rounds:-1} large_rows=${large_rows:-200000}
    seconds=3 small_rows=10000 tasks=10000 backlog=20000 lines=50000 waits=5 crowd=100000
    large_mebibytes=128 small_files=1000 cycle_clients=32
  else
    rounds=${rounds:-3} large_rows=${large_rows:-10000000}
    seconds=10 small_rows=100000 tasks=100000 backlog=200000 lines=500000 waits=30 crowd=1000000
    large_mebibytes=1024 small_files=10000 cycle_clients='8 32 64'
  fi
  [[ $rounds == 1 ]] || spread_note=' (spread)'
}

setup() {
  setup_for_running
  missing_packages=()
  need_command pgbench postgresql-contrib
  need_command wrk wrk
  [[ -x /usr/bin/time ]] || missing_packages+=(time)
  install_missing
  unset_twins
  cd "$repository"
  say 'building'
  quietly cargo build --release --locked --bins --example load --example constant
}

# What the environment says to taskstats is not what is measured here.
unset_twins() {
  local name
  for name in "${!TASKSTATS_@}"; do
    [[ $name == TASKSTATS_PG_BIN ]] || unset "$name"
  done
}

# wants ID...: whether one of these is to be measured.
wants() {
  local id
  for id in "$@"; do
    [[ ,$only, != *,$id,* ]] || return 0
  done
  return 1
}

measure() {
  if wants T6; then
    prepare_large_table
  fi
  if wants T9; then
    make_texts
  fi
  for ((round = 1; round <= rounds; round++)); do
    measure_tasks
    if wants T6; then
      measure_large_tables
    fi
    if wants T9; then
      measure_counting
    fi
  done
}

# One round: a limit, then what is compared with it.
measure_tasks() {
  local count
  if wants T1 T6 T7 T10; then
    for count in $cycle_clients; do limit_cycles "$count"; done
    product_posts
  fi
  if wants T2 T6; then
    for count in 8 32; do limit_batches "L2.c$count" "$count" 100; done
    product_drain
  fi
  if wants T3 T6; then
    limit_latency cycle.c1
    limit_latency cycle.c1.at50 --rate 50
    product_waits
  fi
  if wants T4 T6; then
    prepare_table
    limit_selects
    limit_constant constant
    limit_constant door behind-a-door
    product_reads
  fi
  if wants T5; then
    [[ -n $is_quick ]] || limit_inserts insert 32 1
    limit_inserts insert-100 8 100
    product_batches rate
    product_batches alone --workers 1
  fi
  if wants T10; then
    product_leases one 1
    product_leases three 3
    # What smaller statements alone cost: a third of the tasks wait when the statement of one of three begins.
    limit_batches cycle-36 6 36
    limit_batches cycle-12 6 12
  fi
  if wants T8; then
    product_memory
  fi
}

# Nothing that we started stays behind.
clean_up() {
  local code=$?
  set +e
  [[ -z $service_pid ]] || stop_service
  stop_other_services
  end_constant
  release_transaction
  stop_cluster
  [[ -z $scratch ]] || rm -rf "$scratch"
  exit "$code"
}

main "$@"
