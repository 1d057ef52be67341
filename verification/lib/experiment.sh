# shellcheck shell=bash
# How an experiment runs, judges, and proves that it can fail. Source it; set `title` and `rows`, define row_N for each row
# and `faults`, then call run_experiment.
#
# Each row runs in a subshell of its own: whatever ends it early ends one row, and its service with it. `last_row`, if set, runs
# whichever rows were chosen: it closes the books.

# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source-path=SCRIPTDIR source=gate.sh
source "$(dirname "${BASH_SOURCE[0]}")/gate.sh"

usage="usage: ${0##*/} [FLAGS]

  --quick           few repeats
  --repeats N       so many
  --rows N,N        only these
  --evidence DIR    where the evidence goes (evidence/ of the repository)
  --sabotage FAULT  break what FAULT names, or the expectation with that number: the experiment must notice and exit 1
  --sabotage all    each fault in a run of its own, and each expectation; exit 1 if one goes unnoticed
  --faults          the names of the faults

Environment: CARGO_TARGET_DIR. Exit code: 0 all verdicts are ok, 1 one is not, 2 usage."

# Set by the experiment.
title=
rows=()
last_row=
faults=()

experiment=
sabotage=
quick=
repeats=
row_pid=
cluster_runs=
sabotage_pid=

# run_experiment NAME FULL_REPEATS QUICK_REPEATS ARGUMENT...
run_experiment() {
  experiment=$1
  evidence=$repository/evidence/$1
  read_flags "${@:4}"
  if [[ -z $repeats ]]; then
    repeats=$2
    if [[ -n $quick ]]; then repeats=$3; fi
  fi
  # Flags have twins in the environment; only where PostgreSQL is may come from outside.
  local twin
  while IFS= read -r twin; do
    [[ $twin == TASKSTATS_PG_BIN ]] || unset "$twin"
  done < <(compgen -A variable TASKSTATS_)
  if [[ $sabotage == all ]]; then
    sabotage_all
  else
    run_rows "${@:4}"
  fi
}

read_flags() {
  while (($#)); do
    case $1 in
      --quick) quick=yes ;;
      --faults) printf '%s\n' "${faults[@]}" && exit ;;
      --help | -h) say "$usage" && exit ;;
      --repeats | --rows | --evidence | --sabotage)
        (($# > 1)) || misused "$1 needs a value"
        read_value "$1" "$2" && shift
        ;;
      *) misused "unknown flag $1" ;;
    esac
    shift
  done
}

read_value() {
  case $1 in
    --repeats)
      [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || misused "--repeats $2: not a number from 1"
      repeats=$2
      ;;
    --rows) choose_rows "$2" ;;
    --evidence) evidence=$(realpath --canonicalize-missing -- "$2") ;;
    --sabotage)
      # What is not there cannot be broken: a misspelt fault must not look like one that went unnoticed.
      is_sabotage "$2" || misused "--sabotage $2: no such fault"
      sabotage=$2
      ;;
  esac
}

# choose_rows N,N
choose_rows() {
  local chosen
  IFS=, read -r -a chosen <<<"$1"
  for row in "${chosen[@]}"; do
    [[ " ${rows[*]} " == *" $row "* ]] ||
      misused "--rows $1: the rows are ${rows[*]}${last_row:+ and, after any of these, $last_row}"
  done
  rows=("${chosen[@]}")
}

is_sabotage() {
  [[ $1 == all || $1 == expectations || $1 =~ ^([0-9]+|end)\.[0-9]+$ ]] ||
    printf '%s\n' "${faults[@]}" | awk -v name="$1" '$1 == name { found = 1 } END { exit !found }'
}

misused() {
  say "${0##*/}: $*; see --help" >&2
  exit 2
}

# ------------------------------------------------------------------ one run

run_rows() {
  scratch=$(mktemp --directory --tmpdir "taskstats-$experiment.XXXXXX")
  # Run by root, PostgreSQL runs as somebody else, who has to get to the data directory in it.
  chmod 711 "$scratch"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  prepare_evidence
  setup_for_experiments
  gated=$(dirname "$taskstats")/examples/gated
  (cd "$repository" && quietly cargo build --release --locked --bin taskstats --example gated)
  row=begin
  start_cluster
  record_circumstances "$@"
  say "$title"
  local current
  for current in "${rows[@]}"; do
    [[ $current == "$last_row" ]] || run_row "$current"
  done
  [[ -z $last_row ]] || run_row "$last_row"
  row=end step_number=0
  stop_everything
  print_verdicts
  sum_evidence
  ! grep -q $'\tFAIL\t' "$evidence/verdicts.tsv"
}

# Only what an earlier run left there is removed.
prepare_evidence() {
  if [[ -e $evidence ]]; then
    [[ -e $evidence/verdicts.tsv ]] || fail "$evidence exists and holds no evidence: remove it or choose --evidence"
    rm -r "$evidence"
  fi
  mkdir -p "$evidence"
  : >"$evidence/verdicts.tsv"
  : >"$scratch/ledger"
  : >"$scratch/pids"
}

# A cluster that this run alone uses, and in it a database.
start_cluster() {
  data=$scratch/data
  cluster_runs=yes
  run db-start "$taskstats" db start --data "$data"
  ((exit_code == 0)) || fail "no cluster: $(<"$step.stderr")"
  cluster_url=$(<"$step.stdout")
  database_url=$cluster_url
}

# use_database NAME: a new one, for what comes after.
use_database() {
  database_url=$cluster_url
  db "create-$1" "CREATE DATABASE $1"
  database_url=${cluster_url%/*}/$1
}

run_row() {
  local code=0
  # In the background, because a signal only gets to a shell that waits.
  (
    trap end_row EXIT
    trap 'exit 143' TERM
    set -E
    trap 'say "row $row ended at ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND" >&2' ERR
    row=$1 step_number=0
    "row_$1"
  ) &
  row_pid=$!
  wait "$row_pid" || code=$?
  row_pid=
  if ((code != 0)); then
    row=$1
    verdict "$1.0" FAIL 'the row runs to its end' 'exit code 0' "exit code $code"
  fi
}

end_row() {
  local code=$?
  set +e
  if [[ -n $service_pid ]]; then
    kill -KILL "$service_pid"
    wait "$service_pid"
  fi 2>/dev/null
  if [[ -n ${session_PID-} ]]; then
    close_session
  fi
  if ((code != 0)); then
    remove_all_triggers
  fi
}

# The last step of an experiment is that nothing of it is left.
stop_everything() {
  local server pid alive=
  server=$(head -n 1 "$data/cluster/postmaster.pid")
  run db-stop "$taskstats" db stop --data "$data"
  cluster_runs=
  for pid in "$server" $(<"$scratch/pids"); do
    if is_alive "$pid"; then alive+=" $pid"; fi
  done
  expect end.1 'no process of this experiment is left' 'db stop 0, alive:' "db stop $exit_code, alive:$alive"
}

# What has ended and only waits for its parent to notice is not alive.
is_alive() { grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$1/status"; }

clean_up() {
  set +e
  if [[ -n $row_pid ]]; then
    kill -TERM "$row_pid" 2>/dev/null
    wait "$row_pid"
  fi
  if [[ -n $cluster_runs ]]; then
    "$taskstats" db stop --data "$data"
  fi
  rm -rf "$scratch"
}

# ------------------------------------------------------------------ verdicts

# verdict NUMBER ok|FAIL WHAT EXPECTED SEEN
verdict() {
  local fields=("${@//[$'\t\n']/ }") shown=400
  (IFS=$'\t' && printf '%s\n' "${fields[*]}") >>"$evidence/verdicts.tsv"
  if [[ $2 == FAIL ]]; then
    printf '%s  FAIL  %s\n  expected  %s\n  seen      %s\n' "$1" "$3" "${4:0:shown}" "${5:0:shown}"
  fi
}

# expect NUMBER WHAT EXPECTED SEEN: they are equal. The number is the row's and the assertion's; a repeated assertion
# keeps its number.
expect() {
  local expected=$3
  if expectation_is_sabotaged "$1"; then expected="anything but $3"; fi
  if [[ $4 == "$expected" ]]; then verdict "$1" ok "$2" "$expected" "$4"; else verdict "$1" FAIL "$2" "$expected" "$4"; fi
}

# expect_from NUMBER WHAT LEAST MOST SEEN: a whole number from LEAST to MOST.
expect_from() {
  local least=$3
  if expectation_is_sabotaged "$1"; then least=$(($4 + 1)); fi
  local result=FAIL
  if [[ $5 =~ ^[0-9]+$ ]] && (($5 >= least && $5 <= $4)); then result=ok; fi
  verdict "$1" "$result" "$2" "$least to $4" "$5"
}

# await NUMBER WHAT COMMAND...: it succeeds within $patience; if not, the row ends here.
await() {
  local came=yes
  wait_until "$patience" "${@:3}" || came=no
  expect "$1" "$2" yes "$came"
  [[ $came == yes ]] || exit 1
}

# One line per assertion, in the order of numbers, those of repeats together; of numbers, which were seen.
print_verdicts() {
  sort -t $'\t' -k 1,1V -s "$evidence/verdicts.tsv" | awk -F '\t' '
    $1 != id { show(); id = $1; ok = all = 0; least = most = $5 }
    { all++; ok += $2 == "ok"; what = $3; is_range = $4 ~ /^[0-9]+ to [0-9]+$/ }
    { if ($5 + 0 < least + 0) least = $5; if ($5 + 0 > most + 0) most = $5; range = $4 }
    END { show() }
    function show() {
      if (id == "") return
      seen = least == most ? least : least "-" most
      times = all > 1 ? ok " of " all : ""
      values = is_range ? ": " seen " (" range ")" : ""
      printf("%-6s %-4s %-11s %s%s\n", id, ok == all ? "ok" : "FAIL", times, what, values)
      failed += ok < all; count++
    }
    END { printf "%d assertions, %d failed\n", count, failed }' | tee "$evidence/verdicts.txt"
}

# ------------------------------------------------------------------ sabotage

# sabotaged FAULT: whether this run is to be broken there.
sabotaged() { [[ $sabotage == "$1" ]]; }

expectation_is_sabotaged() { [[ $sabotage == "$1" || $sabotage == expectations ]]; }

# Proves that the experiment can fail. A clean run tells which assertions there are; then each must fail when its
# expectation is wrong, one alone must be enough, and each fault of the system must be noticed.
sabotage_all() {
  sabotage_evidence=$evidence-sabotage
  trap 'end_sabotage; exit 130' INT
  trap 'end_sabotage; exit 143' TERM
  # Where something cannot come, it is not waited for as long as where it must.
  export EXPERIMENT_PATIENCE=${EXPERIMENT_PATIENCE:-6}
  local unnoticed=0 fault name what row undisturbed=
  say "$title: sabotage"
  sabotaged_run clean --quick || fail "not even the undisturbed run is clean; see $sabotage_evidence/clean"
  compare_sabotage expectations || ((unnoticed += 1))
  fault=$(numbers_with clean ok | head -n 1)
  compare_sabotage "$fault" || ((unnoticed += 1))
  for fault in "${faults[@]}"; do
    read -r name what <<<"$fault"
    row=${name%%.*}
    # The last row runs anyway, but it needs something to judge.
    if [[ $row == "$last_row" ]]; then row=${rows[0]}; fi
    # A row that fails when it runs alone would seem to notice anything.
    if [[ $row != "$undisturbed" ]]; then
      sabotaged_run "clean-$row" --quick --rows "$row" || fail "row $row fails undisturbed; see $sabotage_evidence/clean-$row"
      undisturbed=$row
    fi
    notice_fault "$name" "$what" "$row" || ((unnoticed += 1))
  done
  say "$((${#faults[@]} + 2)) sabotages, $unnoticed NOT DETECTED"
  ((unnoticed == 0))
}

# sabotaged_run NAME FLAG...: its exit code; its evidence is kept apart. In the background, because a signal only gets to a
# shell that waits.
sabotaged_run() {
  local code=0
  mkdir -p "$sabotage_evidence"
  "$0" --evidence "$sabotage_evidence/$1" "${@:2}" >"$sabotage_evidence/$1.txt" 2>&1 &
  sabotage_pid=$!
  wait "$sabotage_pid" || code=$?
  sabotage_pid=
  return "$code"
}

end_sabotage() {
  if [[ -n $sabotage_pid ]]; then
    kill -TERM "$sabotage_pid" 2>/dev/null || true
    wait "$sabotage_pid" || true
  fi
}

# numbers_with NAME ok|FAIL: assertions of a run.
numbers_with() { awk -F '\t' -v verdict="$2" '$2 == verdict { print $1 }' "$sabotage_evidence/$1/verdicts.tsv" | sort -Vu; }

# compare_sabotage expectations|NUMBER: with wrong expectations exactly the assertions fail that have them.
compare_sabotage() {
  local code=0 wanted=$1 failed
  sabotaged_run "$1" --quick --sabotage "$1" || code=$?
  if [[ $1 == expectations ]]; then wanted=$(numbers_with clean ok); fi
  failed=$(numbers_with "$1" FAIL)
  local result='NOT DETECTED'
  if [[ $code == 1 && $failed == "$wanted" ]]; then result=detected; fi
  report_sabotage "$1" "$result" \
    "$(wc -l <<<"$wanted") wrong expectations: $(grep -c . <<<"$failed") FAIL, nothing else; exit code $code"
}

# notice_fault NAME WHAT ROW: an assertion of the fault's own row says FAIL.
notice_fault() {
  local code=0 failed result='NOT DETECTED'
  sabotaged_run "$1" --quick --rows "$3" --sabotage "$1" || code=$?
  failed=$(numbers_with "$1" FAIL | paste -s -d ' ')
  if [[ $code == 1 && " $failed" == *" ${1%%.*}."* ]]; then result=detected; fi
  report_sabotage "$1" "$result" "$2: FAIL in ${failed:-nothing}; exit code $code"
}

# report_sabotage NAME RESULT WHAT
report_sabotage() {
  printf '%-18s %-13s %s\n' "$@"
  [[ $2 == detected ]]
}
