# shellcheck shell=bash
# What every script here uses. Source it.

# Absolute, so that a script may be started from anywhere. shellcheck does not see its users.
# shellcheck disable=SC2034
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*"; }

# One line on stderr, and the end of the script.
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# quietly COMMAND...: its output is shown only if it fails, and then its end. Ends the script then.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    rm -f "$log"
    fail "failed: $*"
  fi
  rm -f "$log"
}

# wait_until SECONDS COMMAND...: repeats the command until it succeeds, for what can only be asked and does not report.
wait_until() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    ((SECONDS < end)) || return 1
    sleep 0.05
  done
}
