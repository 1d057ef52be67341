#!/usr/bin/env bash
# What 1,000 clients that wait (`Prefer: wait`) cost: memory, threads and files of the service, and the throughput of eight
# other clients beside them, as a ratio to the same before and after. Of 1,024 seats that leaves 24. Exit code 1 when one of
# them is not answered in time; the figures it judges not.
#
# usage: waiters.sh [WAITERS]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"
# shellcheck source-path=SCRIPTDIR source=lib/service.sh
source "$here/lib/service.sh"

waiters=${1:-1000}
[[ $waiters =~ ^[1-9][0-9]*$ ]] || fail "how many clients? $waiters is no number; usage: ${0##*/} [WAITERS]"

# Four for each of 1,024 clients and of the admin listener's 32, and the service's reserve.
files_needed=$(((1024 + 32) * 4 + 256))

use_scratch
setup_for_running
cd "$repository"
quietly cargo build --release --locked --bins --example waiters
if (($(ulimit -Sn) < files_needed)); then
  ulimit -Sn "$files_needed" 2>/dev/null ||
    fail "the service needs $files_needed open files for its 1,024 clients and may have $(ulimit -Hn): raise the hard limit."
fi
# A queue that the eight others never fill: what is refused would be answered faster than what is done.
start_in_scratch --queue 100000
printf 'Go one' >"$scratch/text"
submit "$scratch/text" "$scratch/answer" >/dev/null
await_terminal 'task[0]' "$scratch/answer" || fail 'the first task did not end'
# Rows of another program, RUNNING for ever.
scratch_sql --command "INSERT INTO go_tasks (id, text, status) SELECT 'held-' || n, '', 'RUNNING' FROM generate_series(0, $waiters - 1) n"
"$target/release/examples/waiters" "${service_url#http://}" "$service_pid" "$waiters"
