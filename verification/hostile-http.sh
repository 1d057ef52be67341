#!/usr/bin/env bash
# An hour's worth of bad traffic within minutes, against the real service on a private PostgreSQL: verification/hostile/ has
# what it consists of. Good clients must keep their throughput, threads, files and memory must be back afterwards, and
# every task that was answered with 202 must be in the database, counted right. Exit code 1 if not.
#
# usage: hostile-http.sh [--minutes N] [--seed N]     (1 minute of attacks, seed 1; up to 5 minutes around it)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"
# shellcheck source-path=SCRIPTDIR source=lib/service.sh
source "$here/lib/service.sh"

minutes=1
seed=1
while (($#)); do
  case $1 in
    --minutes) minutes=${2:?a number of minutes} ;;
    --seed) seed=${2:?a number} ;;
    *) fail "unknown argument $1; usage: ${0##*/} [--minutes N] [--seed N]" ;;
  esac
  shift 2
done

no_task_is_open() { [[ $(scratch_sql --command "SELECT count(*) FROM go_tasks WHERE status IN ('QUEUED', 'RUNNING')") == 0 ]]; }

# expect WANTED FOUND WHAT
expect() {
  if [[ $1 == "$2" ]]; then
    say "ok     $3"
  else
    say "FAILED $3: expected $1, found $2"
    sound=
  fi
}

use_scratch
setup_for_running
cd "$repository"
quietly cargo build --release --locked --bin taskstats --example hostile
start_in_scratch --queue 100000
pid=$service_pid
sound=yes
"${taskstats%/*}/examples/hostile" "${service_url#http://}" "${admin_url#http://}" "$pid" "$scratch/ledger" "$seed" \
  $((minutes * 60)) || sound=

wait_until 120 no_task_is_open || fail 'tasks stay open'
scratch_sql --command 'CREATE TABLE ledger (id text, words bigint, bytes bigint, runes bigint)' --command "\\copy ledger FROM '$scratch/ledger'"
expect "$(wc -l <"$scratch/ledger")" "$(scratch_sql --command "SELECT count(DISTINCT id) FROM ledger JOIN go_tasks USING (id)
  WHERE status = 'SUCCEEDED' AND (go_tasks.words, go_tasks.bytes, go_tasks.runes) = (ledger.words, ledger.bytes, ledger.runes)")" \
  'each of them is a row of its own, and counted right'
expect 0 "$(scratch_sql --command "SELECT count(*) FROM go_tasks WHERE text = 'smuggled'")" 'nothing that was smuggled was executed'
stop_service && code=0 || code=$?
expect 0 "$code" 'the service is the same process, and ends with exit code 0'
say "       $(wc -l <"$scratch/serve.err") lines of log; $(grep -c panicked "$scratch/serve.err" || true) panics"
[[ -n $sound ]]
