#!/usr/bin/env bash
# Every experiment, then one table of all verdicts.

set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage='usage: verification/all.sh [--quick] [--evidence DIR] [--sabotage]

  --quick         few repeats
  --evidence DIR  where the evidence goes (evidence/ of the repository)
  --sabotage      prove instead that every experiment notices when something is broken

Environment: CARGO_TARGET_DIR. Exit code: 0 all verdicts are ok (with --sabotage: everything was noticed), 1 not, 2 usage.'

experiments=(matrix restart lease outside-effect)
evidence=$repository/evidence
flags=()
sabotage=
running=

main() {
  while (($#)); do
    case $1 in
      --quick) flags+=(--quick) ;;
      --evidence)
        (($# > 1)) || misused '--evidence needs a value'
        evidence=$(realpath --canonicalize-missing -- "$2")
        shift
        ;;
      --sabotage) sabotage=yes ;;
      --help | -h) say "$usage" && exit ;;
      *) misused "unknown flag $1" ;;
    esac
    shift
  done
  trap 'end_experiment; exit 130' INT
  trap 'end_experiment; exit 143' TERM
  mkdir -p "$evidence"
  local experiment failed=0
  for experiment in "${experiments[@]}"; do
    if [[ -n $sabotage ]]; then
      run_experiment "$experiment" --sabotage all || ((failed += 1))
    else
      run_quietly "$experiment" "${flags[@]}" || ((failed += 1))
    fi
  done
  [[ -n $sabotage ]] || print_all_verdicts
  say "${#experiments[@]} experiments, $failed failed"
  ((failed == 0))
}

misused() {
  say "all.sh: $1; see --help" >&2
  exit 2
}

# run_experiment NAME FLAG...: in the background, because a signal only gets to a shell that waits.
run_experiment() {
  local code=0
  "$repository/verification/$1.sh" --evidence "$evidence/$1" "${@:2}" &
  running=$!
  wait "$running" || code=$?
  running=
  return "$code"
}

# The same; what it said is shown if it failed.
run_quietly() {
  local code=0 log=$evidence/$1.txt started=$SECONDS
  printf '%-15s ' "$1"
  run_experiment "$@" >"$log" 2>&1 || code=$?
  if ((code == 0)); then
    say "ok ($((SECONDS - started)) s)"
  else
    say "FAILED ($((SECONDS - started)) s), exit code $code"
    cat "$log"
  fi
  return "$code"
}

end_experiment() {
  if [[ -n $running ]]; then
    kill -TERM "$running" 2>/dev/null || true
    wait "$running" || true
  fi
}

print_all_verdicts() {
  local experiment
  for experiment in "${experiments[@]}"; do
    # One that ended before its verdicts has been shown already.
    [[ ! -e $evidence/$experiment/verdicts.txt ]] ||
      sed "s/^/$(printf '%-15s' "$experiment")/" "$evidence/$experiment/verdicts.txt"
  done
}

main "$@"
