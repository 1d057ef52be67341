#!/usr/bin/env bash
# Everything that must hold before a change is taken: format, lints, the compiler we promise, the scripts, the tests, and the
# way from a clone to a counted text, and the experiments with few repeats. Installs what is missing (Debian, Ubuntu). Last
# line: `N passed, N failed`.
#
# Each gate counts as one, cargo's tests each as one of their own.

set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"

passed=0
failed=0

main() {
  cd "$repository"
  scratch=$(mktemp --directory --tmpdir taskstats-test.XXXXXX)
  # Run by root, PostgreSQL runs as somebody else, who has to get to the data directory in it.
  chmod 711 "$scratch"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  setup_for_testing
  gate 'cargo fmt' cargo fmt --check
  gate 'cargo clippy' cargo clippy --quiet --all-targets --locked -- -D warnings
  gate "dependencies for Rust $rust_needed" dependencies_fit_the_compiler
  gate 'shellcheck' check_scripts
  cargo_tests
  export TASKSTATS_DATA=$scratch/data
  gate 'quickstart' verification/quickstart.sh
  gate 'quickstart again, on the same cluster' quickstart_goes_on
  gate 'experiments, few repeats' verification/all.sh --quick --evidence "$scratch/evidence"
  say "$passed passed, $failed failed"
  ((failed == 0))
}

# gate NAME COMMAND...: one test. The command's output is shown if it fails.
gate() {
  local started=$SECONDS
  printf '%-40s ' "$1"
  if "${@:2}" >"$scratch/output" 2>&1; then
    ((passed += 1))
    say "ok ($((SECONDS - started)) s)"
  else
    ((failed += 1))
    say "FAILED ($((SECONDS - started)) s)"
    cat "$scratch/output"
  fi
}

# No crate in Cargo.lock may ask for a newer compiler than Cargo.toml promises. Only the crates that say what they need can
# be judged; the build with the old compiler judges the rest.
dependencies_fit_the_compiler() {
  local too_new
  too_new=$(cargo metadata --locked --format-version 1 | jq --raw-output --arg needed "$rust_needed" '
    def version: split(".") | map(tonumber) | (. + [0, 0])[:3];
    .packages[] | select(.rust_version != null and (.rust_version | version) > ($needed | version))
    | "\(.name) \(.version) needs Rust \(.rust_version)"') || return
  say "$too_new"
  [[ -z $too_new ]]
}

check_scripts() {
  local scripts
  mapfile -d '' scripts < <(find_scripts)
  ((${#scripts[@]} > 0)) || return
  printf '%s\n' "${scripts[@]}"
  shellcheck --external-sources "${scripts[@]}"
}

# Whatever is named like a shell script or begins like one, but for what git ignores.
find_scripts() {
  local file first
  while IFS= read -r -d '' file; do
    first=
    IFS= read -r first <"$file" || true
    if [[ $file == *.sh || $first =~ ^#!.*[/\ ](ba|da)?sh(\ |$) ]]; then
      printf '%s\0' "$file"
    fi
  done < <(find . \( -path ./.git -o -path ./target -o -path ./taskstats-data -o -path ./evidence \) -prune -o -type f -print0)
}

# Every test binary and the tests in the documentation report for themselves, also when others failed.
cargo_tests() {
  local started=$SECONDS code=0 ok bad
  printf '%-40s ' 'cargo test'
  run_cargo_tests >"$scratch/output" 2>&1 || code=$?
  read -r ok bad < <(count_tests "$scratch/output")
  # A test that does not compile or ends its binary is in no sum; nor is what did not run at all.
  if ((code != 0 && bad == 0 || ok + bad == 0)); then
    bad=$((bad + 1))
  fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  say "$ok passed, $bad failed ($((SECONDS - started)) s)"
  if ((bad > 0)); then
    cat "$scratch/output"
  fi
}

# Built on its own and quietly, so that the output is about tests.
run_cargo_tests() {
  cargo test --quiet --locked --no-run && cargo test --locked --no-fail-fast
}

# Sums up `test result: FAILED. 12 passed; 1 failed; 0 ignored; …`. A test binary ends with its own; those before it are the
# output of failed tests that ran a test binary themselves. Documentation tests come in several groups, one line each.
count_tests() {
  awk 'function add() { ok += group_ok; bad += group_bad; group_ok = group_bad = 0 }
       /^ +Running / { add(); in_documentation = 0 }
       /^ +Doc-tests / { add(); in_documentation = 1 }
       /^test result: / {
         if (in_documentation) add()
         for (i = 2; i <= NF; i++) {
           if ($i == "passed;") group_ok = $(i - 1)
           if ($i == "failed;") group_bad = $(i - 1)
         }
       }
       END { add(); print ok + 0, bad + 0 }' "$1"
}

# The first run made task[0] and task[1].
quickstart_goes_on() {
  verification/quickstart.sh | tee "$scratch/second-run" || return
  grep -qF 'task[2]  Go one' "$scratch/second-run"
}

clean_up() {
  rm -rf "$scratch"
}

main "$@"
