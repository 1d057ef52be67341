#!/usr/bin/env bash
# Four instances with leases on one database, 20,000 tasks for each of three seeds; every few hundred milliseconds one instance
# is killed and replaced, stopped for a while, or robbed of its connections. At the end every task has ended once, with one
# effect and the right counters, and the history of every row explains its epochs. The code: tests/service/campaign.rs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"

usage() {
  say "usage: verification/campaign.sh [--tasks N] [--seeds A,B,C]"
  say
  say "N tasks (20000) for each of the seeds (1,2,3). A seed decides what is done to whom; what a process was just doing"
  say "then is up to the machine."
}

tasks=20000
seeds=1,2,3
while (($# > 0)); do
  case $1 in
    --help) usage && exit ;;
    --tasks | --seeds)
      if (($# < 2)); then usage >&2 && exit 2; fi
      if [[ $1 == --tasks ]]; then tasks=$2; else seeds=$2; fi
      shift 2
      ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[[ $tasks =~ ^[1-9][0-9]*$ && $seeds =~ ^[0-9]+(,[0-9]+)*$ ]] || { usage >&2 && exit 2; }

setup_for_running
cd "$repository"
quietly cargo build --release --locked --example gated
quietly cargo test --release --locked --no-run --test service
# libtest counts one test; what it printed of each seed is the result.
CAMPAIGN_TASKS=$tasks CAMPAIGN_SEEDS=$seeds \
  cargo test --quiet --release --locked --test service -- --ignored --exact --nocapture campaign::full
