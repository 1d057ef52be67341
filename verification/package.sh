#!/usr/bin/env bash
# Makes a source package of HEAD with SHA-256 sums, and replays it: unpacked into a new directory, with a new build cache and
# new databases, everything that verification/test.sh and verification/all.sh check must hold there, too.

set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage='usage: verification/package.sh [--quick] [--no-replay]

  --quick      few repeats in the replay
  --no-replay  only make the package

The package, its sums and what the replay said go to evidence/package. Exit code: 0, or 1 if something does not hold.'

output=$repository/evidence/package
flags=()
replay=yes
running=
failed=0

main() {
  while (($#)); do
    case $1 in
      --quick) flags+=(--quick) ;;
      --no-replay) replay= ;;
      --help | -h) say "$usage" && exit ;;
      *) say "package.sh: unknown flag $1; see --help" >&2 && exit 2 ;;
    esac
    shift
  done
  scratch=$(mktemp --directory --tmpdir taskstats-package.XXXXXX)
  # Run by root, PostgreSQL runs as somebody else, who has to get to the data directories in it.
  chmod 711 "$scratch"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  make_package
  [[ -z $replay ]] || replay_package
  ((failed == 0))
}

make_package() {
  local commit
  commit=$(in_git rev-parse --short=12 HEAD)
  name=taskstats-$commit
  [[ -z $(in_git status --porcelain) ]] || say 'note: changes that are not committed are not in the package'
  rm -rf "$output"
  mkdir -p "$output"
  sum_commit >"$scratch/SHA256SUMS"
  # The sums come from git's objects and travel in the package: what was unpacked is compared with what was committed.
  in_git archive --format=tar.gz --prefix="$name/" --add-file="$scratch/SHA256SUMS" --output="$output/$name.tar.gz" HEAD
  (cd "$output" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
  say "$output/$name.tar.gz"
  say "$(wc -l <"$scratch/SHA256SUMS") files, $(cut -c 1-64 "$output/$name.tar.gz.sha256")"
}

# Root may well package a tree that belongs to somebody else.
in_git() { git -c safe.directory='*' -C "$repository" "$@"; }

sum_commit() {
  local path sum
  while IFS= read -r -d '' path; do
    sum=$(in_git cat-file blob "HEAD:$path" | sha256sum)
    printf '%s  %s\n' "${sum%% *}" "$path"
  done < <(in_git ls-tree -r -z --name-only HEAD)
}

replay_package() {
  local unpacked=$scratch/replay/$name
  mkdir "$scratch/replay"
  chmod 755 "$scratch/replay"
  check 'the archive has its sum' sums_hold "$output" "$name.tar.gz.sha256"
  tar --extract --gzip --file "$output/$name.tar.gz" --directory "$scratch/replay"
  check 'each file has its sum' sums_hold "$unpacked" SHA256SUMS
  check 'there is no other file' only_listed_files "$unpacked"
  # A new build cache: the tests and experiments build in the unpacked directory.
  unset CARGO_TARGET_DIR
  check 'verification/test.sh' "$unpacked/verification/test.sh"
  check 'verification/all.sh' "$unpacked/verification/all.sh" "${flags[@]}"
  check 'nothing was changed by all that' sums_hold "$unpacked" SHA256SUMS
  if [[ -d $unpacked/evidence ]]; then
    cp -r "$unpacked/evidence" "$output/evidence"
  fi
  say "the replay's evidence: $output"
}

# check NAME COMMAND...: a line for it; what the command said is kept, and shown if it failed.
check() {
  local code=0 started=$SECONDS log
  log=$output/$(tr -cs 'a-zA-Z.\n' - <<<"$1").txt
  printf '%-34s ' "$1"
  # In the background, because a signal only gets to a shell that waits.
  "${@:2}" >"$log" 2>&1 &
  running=$!
  wait "$running" || code=$?
  running=
  if ((code == 0)); then
    say "ok ($((SECONDS - started)) s)  $(tail -n 1 "$log")"
  else
    ((failed += 1))
    say "FAILED ($((SECONDS - started)) s), exit code $code"
    cat "$log"
  fi
}

sums_hold() { (cd "$1" && sha256sum --check --strict --quiet "$2"); }

only_listed_files() {
  diff <(sed 's/^[0-9a-f]*  //' "$1/SHA256SUMS" | sort) \
    <(cd "$1" && find . ! -type d ! -path ./SHA256SUMS -printf '%P\n' | sort)
}

clean_up() {
  set +e
  if [[ -n $running ]]; then
    kill -TERM "$running" 2>/dev/null
    wait "$running"
  fi
  rm -rf "$scratch"
}

main "$@"
