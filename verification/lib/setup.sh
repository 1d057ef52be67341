# shellcheck shell=bash
# Installs from the distribution (Debian, Ubuntu) what this machine lacks to build, run and check taskstats.
# Source it, then call one of the setup_for_… below. What is there already is used as it is, and nothing is said
# unless something has to be installed or goes wrong.
#
# Never here: a PostgreSQL cluster. taskstats makes its own; the distribution's must neither be created nor started by us.

# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The oldest compiler that will do is written down once, in Cargo.toml.
rust_needed=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' "$repository/Cargo.toml")

# Where Ubuntu 24.04 puts the newer compilers that it has beside its own old one, as packages cargo-1.85 and so on.
versioned_rust=/usr/lib/rust-$rust_needed/bin

# While this file is there, installing the PostgreSQL server does not create a cluster.
no_main_cluster=/etc/postgresql-common/createcluster.d/taskstats-setup.conf

missing_packages=()
package_lists_are_fresh=

# What quickstart.sh needs.
setup_for_running() {
  missing_packages=()
  need_postgresql
  need_rust
  need_command cc gcc libc6-dev # cargo links with it
  need_command curl curl
  need_command jq jq
  install_missing
  use_rust || fail "Rust $rust_needed or newer is still not found after the installation: get it from https://rustup.rs, then run this again."
}

# What the experiments need: the same, and git, which knows the sources of a clone.
setup_for_experiments() {
  setup_for_running
  missing_packages=()
  need_command git git
  install_missing
}

# What test.sh needs: the same, and the checkers.
setup_for_testing() {
  setup_for_experiments
  missing_packages=()
  need_rust_checkers
  need_command shellcheck shellcheck
  install_missing
}

# need_command COMMAND PACKAGE...: the packages that bring the command are missing unless it is there.
need_command() {
  command -v "$1" >/dev/null || missing_packages+=("${@:2}")
}

# taskstats finds the server's programs in the same places. In Debian they are not on PATH; psql is.
need_postgresql() {
  if [[ -z ${TASKSTATS_PG_BIN-} ]] && ! command -v initdb >/dev/null &&
    ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null &&
    ! compgen -G '/usr/pgsql-*/bin/initdb' >/dev/null &&
    ! [[ -x /usr/local/pgsql/bin/initdb ]]; then
    missing_packages+=(postgresql)
  else
    need_command psql postgresql-client
  fi
}

need_rust() {
  if use_rust; then
    return
  fi
  if command -v cargo >/dev/null && command -v rustc >/dev/null; then
    fail "$(rustc --version) is too old: Rust $rust_needed or newer is needed." \
      "Run 'rustup update' if it came from rustup, else get it from https://rustup.rs; then run this again."
  fi
  need_rust_package cargo
  missing_packages+=(ca-certificates) # cargo fetches the crates over HTTPS
}

# rustfmt and clippy only work with the compiler they were made with, so they come from where that one comes from.
need_rust_checkers() {
  if cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; then
    return
  elif [[ $(command -v rustup) == "$(dirname "$(command -v cargo)")/rustup" ]]; then
    say "installing rustfmt and clippy (rustup)"
    quietly rustup component add rustfmt clippy
  else
    need_rust_package rustfmt
    need_rust_package rust-clippy
  fi
}

# need_rust_package cargo|rustfmt|rust-clippy: the plain package, or the one that Ubuntu has beside a plain one that is too old.
need_rust_package() {
  if ! command -v apt-get >/dev/null || distribution_rust_is_new_enough; then
    missing_packages+=("$1")
  elif [[ $1 == rust-clippy ]]; then
    missing_packages+=("rust-$rust_needed-clippy")
  else
    missing_packages+=("$1-$rust_needed")
  fi
}

# Fails, in one line, when the distribution has no Rust that will do.
distribution_rust_is_new_enough() {
  refresh_package_lists
  local candidate
  candidate=$(LC_ALL=C apt-cache policy cargo | awk '$1 == "Candidate:" { print $2 }')
  if is_at_least "$rust_needed" "$candidate"; then
    return
  fi
  LC_ALL=C apt-cache show "cargo-$rust_needed" >/dev/null 2>&1 ||
    fail "this distribution's cargo is ${candidate:-missing}: get Rust $rust_needed or newer from https://rustup.rs, then run this again."
  return 1
}

# Puts a compiler that is new enough first on PATH: the user's choice, rustup's (a shell that is not a login shell may not
# have it on PATH), the distribution's newer one.
use_rust() {
  local directory path
  for directory in '' "${CARGO_HOME:-${HOME-}/.cargo}/bin" "$versioned_rust"; do
    path=${directory:+$directory:}$PATH
    if PATH=$path rust_is_new_enough; then
      PATH=$path
      return
    fi
  done
  return 1
}

rust_is_new_enough() {
  command -v cargo >/dev/null && command -v rustc >/dev/null || return
  local version
  version=$(rustc --version 2>/dev/null) || return
  version=${version#rustc }
  is_at_least "$rust_needed" "${version%% *}"
}

# is_at_least NEEDED VERSION
is_at_least() {
  printf '%s\n' "$1" "$2" | sort --version-sort --check=silent
}

install_missing() {
  ((${#missing_packages[@]})) || return 0
  command -v apt-get >/dev/null ||
    fail "missing, by Debian's package names: ${missing_packages[*]}. Install them, then run this again."
  say "installing ${missing_packages[*]}"
  refresh_package_lists
  if [[ " ${missing_packages[*]} " == *' postgresql '* ]]; then
    prevent_main_cluster
  fi
  apt_get install --no-install-recommends "${missing_packages[@]}"
  # Only now: as long as the server's package is not configured, whoever completes that would create a cluster.
  if [[ -e $no_main_cluster ]]; then
    as_root rm "$no_main_cluster"
  fi
  hash -r
}

# Debian's PostgreSQL creates a cluster `main` and starts it on port 5432 when it is installed first, unless told not to. It
# reads this directory through the include_dir line of /etc/postgresql-common/createcluster.conf.
prevent_main_cluster() {
  as_root mkdir -p "${no_main_cluster%/*}"
  as_root tee "$no_main_cluster" >/dev/null <<<'create_main_cluster = false'
}

refresh_package_lists() {
  [[ -z $package_lists_are_fresh ]] || return 0
  apt_get update
  package_lists_are_fresh=yes
}

# A machine that has just booted may be updating itself: wait for the lock. Nothing may ask, nothing may restart services.
apt_get() {
  ((EUID == 0)) || command -v sudo >/dev/null ||
    fail 'only root may install packages: install sudo, or run this once as root.'
  quietly as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    apt-get -o DPkg::Lock::Timeout=300 --yes --quiet "$@"
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    sudo "$@"
  fi
}
