#!/usr/bin/env bash
# Chapter E08: a task is somebody's for a time. Workers die before and after their effect, fight for one task, sleep past their
# lease, have wrong clocks; the rows say who may write, and what is refused. README.md says more of each row.

set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib/lease.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/lease.sh"
# shellcheck source-path=SCRIPTDIR source=lib/lease_crashes.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/lease_crashes.sh"
# shellcheck source-path=SCRIPTDIR source=lib/lease_owners.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/lease_owners.sh"
# shellcheck source-path=SCRIPTDIR source=lib/lease_mixed.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/lease_mixed.sh"

# shellcheck disable=SC2034 # for lib/experiment.sh
{
  title='lease: crashes, contests, stale owners, clocks, a plain service beside'
  rows=(1 2 3 4 5 6 7 8)
  faults=(
    '1.alive          A does not die'
    '1.expired        the lease is over when B comes first'
    '1.touched        somebody touches the row within the lease'
    '1.effect-lost    the record of the effect is deleted'
    '2.before         A dies before its effect'
    '2.effect-lost    the record of the effect is deleted before B comes'
    '3.gate-missing   claims are not held, so nobody waits for anybody'
    '3.both-win       a claimed row is still QUEUED'
    '4.no-successor   nobody takes the task over'
    '4.unfenced       the row is given back to the old owner and epoch'
    '5.awake          A is not stopped'
    '5.no-successor   nobody takes the task over'
    '5.unfenced       the row is given back to the old owner and epoch'
    '6.right-clock    the clocks are right'
    '6.own-clock      the lease ends when the clock of the worker says so'
    '7.unleased       the leased row has no end of its lease'
    '7.leased         the plain row has an end of a lease'
    '8.uncancelled    nobody cancels'
    '8.patient        the limit of attempts is higher'
  )
}

run_experiment lease 10 3 "$@"
