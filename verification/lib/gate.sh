# shellcheck shell=bash
# Gates in the database: a trigger that makes each UPDATE to a certain status wait for an advisory lock, which one psql
# holds while the gate is shut. Nothing here waits for time to pass.
#
# A statement at the gate is given up by the server after lock_timeout (half of --db-timeout) and tried again by the service
# with its backoff. So a gate may be shut for as long as one likes.

# shellcheck source-path=SCRIPTDIR source=evidence.sh
source "$(dirname "${BASH_SOURCE[0]}")/evidence.sh"

gate_key=39
# Longest wait for something that must happen; only a failing experiment waits so long.
patience=${EXPERIMENT_PATIENCE:-20}

# One psql that stays: an advisory lock lives as long as its session, and a repeat need not start a process.
open_session() {
  coproc session { exec psql "${psql_options[@]}" "$database_url" 2>&1; }
  # The shell forgets both when the process ends.
  session_in=${session[1]}
  session_out=${session[0]}
}

# ask SQL: by the session; answer has the result.
ask() {
  local line
  answer=
  printf '%s;\n\\echo end of answer\n' "$1" >&"$session_in"
  while read -r -t "$patience" line <&"$session_out"; do
    [[ $line != 'end of answer' ]] || return 0
    answer+=${answer:+$'\n'}$line
  done
  fail "no answer to: $1"
}

# Its locks end with it.
close_session() {
  local pid=${session_PID-}
  exec {session_in}>&- {session_out}<&-
  wait "$pid" || true
}

shut_gate() { ask "SELECT pg_advisory_lock($gate_key)"; }
open_gate() { ask "SELECT pg_advisory_unlock($gate_key)"; }

# build_gate NAME STATUS: RUNNING holds claims, SUCCEEDED holds finishes. Shut it first.
build_gate() { db_script "$1" gate.sql key="$gate_key" status="$2"; }
remove_gate() { db "$1" 'DROP FUNCTION experiment_gate() CASCADE'; }

# Whether a statement stands at the gate.
gate_is_reached() {
  ask "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $gate_key AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
  ((answer > 0))
}

# refuse NAME STATUS: each UPDATE to the status is an SQL error, until refuse_no_more.
refuse() { db_script "$1" refuse.sql status="$2" name="experiment_refuse_${2,,}"; }
refuse_no_more() { db "$1" "DROP FUNCTION experiment_refuse_${2,,}() CASCADE"; }

# After a row that ended early: the next one must not meet its triggers.
remove_all_triggers() {
  psql "${psql_options[@]}" "$database_url" >/dev/null <<'SQL'
SELECT format('DROP FUNCTION %s CASCADE', oid::regprocedure) FROM pg_proc WHERE proname LIKE 'experiment\_%' \gexec
SQL
}
