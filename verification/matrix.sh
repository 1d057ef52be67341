#!/usr/bin/env bash
# What the service answers to good and bad input, to overload, cancels, lost databases, signals and SQL errors: for each, HTTP,
# the rows in PostgreSQL and the exit code must tell the same story. README.md says more of each row.

set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib/experiment.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/experiment.sh"
# shellcheck source-path=SCRIPTDIR source=lib/matrix_requests.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/matrix_requests.sh"
# shellcheck source-path=SCRIPTDIR source=lib/matrix_losses.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/matrix_losses.sh"
# shellcheck source-path=SCRIPTDIR source=lib/matrix_claims.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/matrix_claims.sh"
# shellcheck source-path=SCRIPTDIR source=lib/matrix_cancels.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/matrix_cancels.sh"

# shellcheck disable=SC2034 # for lib/experiment.sh
{
  title='matrix: input, overload, cancel, lost database, signals, SQL errors'
  rows=(1 2 3 4 5 6 7 8 10 13)
  last_row=19
  faults=(
    '1.valid-flag      --admin gets a loopback address'
    '1.connects        somebody connects to the database meanwhile'
    '2.well-formed     the malformed JSON is well-formed'
    '3.no-limit        the service runs without --max-words'
    '4.gate-missing    claims are not held'
    '4.row-kept        the refused text is in the table'
    '5.gate-missing    claims are not held'
    '6.server-runs     PostgreSQL is not stopped'
    '6.row-kept        the refused text is in the table'
    '6.restarted       somebody restarts the service'
    '7.killed          SIGKILL in place of SIGTERM'
    '7.gate-missing    nothing is in hand'
    '8.gate-missing    finishes are not held'
    '8.swallowed       what recovery writes is lost'
    '10.claim-allowed  claims are not refused'
    '10.overwritten    the cancelled row is overwritten'
    '10.unbounded      the service may wait twice as long for SQL'
    '13.gate-missing   the analyser is not held'
    '13.untold         the cancel is lost in the database'
    '13.revived        a cancelled row ends as SUCCEEDED'
    '19.row-untold     a row of which no reply told'
    '19.trigger-left   a trigger is left behind'
  )
}

# The books are closed: every id and its state, by the replies, by the database, by HTTP.
row_19() {
  if sabotaged 19.row-untold; then
    db sabotage "INSERT INTO go_tasks (id, text, status) VALUES ('task[4000000]', 'untold', 'SUCCEEDED')"
  elif sabotaged 19.trigger-left; then
    build_gate sabotage NEVER
  fi
  # The last word on each.
  note told "$(tac "$scratch/ledger" | sort -t $'\t' -k 1,1 -s -u | sort -V | tr '\t' '|')"
  local told=$step.stdout
  db stored 'SELECT id, status FROM go_tasks ORDER BY go_task_number(id), id'
  run difference diff "$told" "$step.stdout"
  expect 19.1 'all ids and states in the table are those that the replies told' 'no difference' \
    "$(head -n 5 "$step.stdout" | grep . || say 'no difference')"
  db_count unfinished "status NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED')"
  expect 19.2 'nothing is left unfinished' 0 "$answer"
  db_count zeros "status <> 'SUCCEEDED' AND (words, bytes, runes) <> (0, 0, 0)"
  expect 19.3 'FAILED and CANCELED have no counts' 0 "$answer"
  db triggers "SELECT (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal),
                      (SELECT count(*) FROM pg_proc WHERE proname LIKE 'experiment\\_%')"
  expect 19.4 'no trigger and no function of the experiment is left' '0|0' "$answer"
}

run_experiment matrix 200 5 "$@"
