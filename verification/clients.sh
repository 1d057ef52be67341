#!/usr/bin/env bash
# The programs that people really use, against the real service: curl, Python's requests with a pool of 32 connections, wrk
# with 256, nginx with TLS in front, and schemathesis, which makes requests out of openapi.json. Installs what is missing
# (Debian, Ubuntu; PyPI into an environment of its own). One line of figures each; exit code 1 if one of them fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib/setup.sh
source "$here/lib/setup.sh"
# shellcheck source-path=SCRIPTDIR source=lib/service.sh
source "$here/lib/service.sh"

schemathesis_version=4.32.5
requests_version=2.34.2
token=a-token-for-the-clients-of-this-test-only
# What schemathesis expects of a DELETE is not what ours does: the task is cancelled, and stays to be asked for.
schemathesis_options=(--checks all --exclude-checks use_after_free --generation-database none --seed 39 --max-examples 60)

failures=0
nginx_pid=
use_scratch

clean_up() {
  [[ -z $nginx_pid ]] || kill -QUIT "$nginx_pid" 2>/dev/null || true
  clean_up_scratch
}
trap clean_up EXIT

setup_clients() {
  setup_for_running
  missing_packages=()
  need_command wrk wrk
  need_command nginx nginx
  need_command openssl openssl
  need_command python3 python3 python3-venv
  python3 -c 'import ensurepip' 2>/dev/null || missing_packages+=(python3-venv)
  without_starting_services install_missing
  say "preparing requests $requests_version and schemathesis $schemathesis_version"
  quietly python3 -m venv "$scratch/venv"
  quietly "$scratch/venv/bin/pip" install --disable-pip-version-check \
    "requests==$requests_version" "schemathesis==$schemathesis_version"
}

# Debian starts what it installs; an nginx of the machine's own on port 80 is not wanted here.
without_starting_services() {
  local policy=/usr/sbin/policy-rc.d made=
  if ((${#missing_packages[@]})) && [[ ! -e $policy ]]; then
    as_root tee "$policy" >/dev/null <<<$'#!/bin/sh\nexit 101'
    as_root chmod 755 "$policy"
    made=yes
  fi
  "$@"
  [[ -z $made ]] || as_root rm "$policy"
}

# check NAME FUNCTION: one line with what the function says last; all it says if it fails.
check() {
  local status
  # Not in a condition: there the shell would go on after what fails within the function.
  set +e
  (
    set -e
    "$2"
  ) >"$scratch/said" 2>&1
  status=$?
  set -e
  if ((status == 0)); then
    printf '%-28s ok      %s\n' "$1" "$(tail -n 1 "$scratch/said")"
  else
    printf '%-28s FAILED\n' "$1"
    cat "$scratch/said"
    failures=$((failures + 1))
  fi
}

# expect WANTED FOUND WHAT
expect() {
  [[ $1 == "$2" ]] || fail "$3: expected $1, found $2"
}

with_curl() {
  local answer=$scratch/curl.json id
  printf 'Go one' >"$scratch/text"
  expect 202 "$(submit "$scratch/text" "$answer")" 'POST'
  id=$(jq --raw-output .id "$answer")
  await_terminal "$id" "$answer"
  expect 'SUCCEEDED 2 6 6' "$(jq --raw-output '"\(.status) \(.words) \(.bytes) \(.runes)"' "$answer")" 'the task'
  expect 200 "$(request "$answer" --head "/tasks/$id")" 'HEAD'
  expect 409 "$(request "$answer" --request DELETE "/tasks/$id")" 'DELETE when it has ended'
  # Large enough for curl to ask first (Expect: 100-continue).
  head -c 1000000 < <(yes 'one word after the other' | tr '\n' ' ') >"$scratch/text"
  expect 202 "$(submit "$scratch/text" "$answer")" 'POST of 1 MB'
  await_terminal "$(jq --raw-output .id "$answer")" "$answer"
  expect "$(wc -w <"$scratch/text")" "$(jq .words "$answer")" 'words'
  expect 413 "$(head -c 2000000 /dev/zero | request "$answer" --data-binary @- /tasks)" 'POST of 2 MB'
  expect 411 "$(request "$answer" --header 'Transfer-Encoding: chunked' --data x /tasks)" 'POST in chunks'
  say "$(curl --version | head -n 1 | cut -d ' ' -f 1,2): 202, 200, HEAD, 409, 1 MB with Expect, 413, 411"
}

with_requests() {
  local before
  before=$(scratch_sql --command 'SELECT count(*) FROM go_tasks')
  "$scratch/venv/bin/python" "$here/clients/pool.py" "$service_url" 2000
  expect 2000 $(($(scratch_sql --command 'SELECT count(*) FROM go_tasks') - before)) 'rows'
  tail -n 1 "$scratch/said"
}

with_wrk() {
  wrk -t2 -c256 -d10s "$service_url/tasks/task%5B0%5D" | tee "$scratch/wrk"
  ! grep -E 'Socket errors|Non-2xx' "$scratch/wrk" || fail 'requests were lost'
  say "256 connections, $(awk '/^Requests\/sec/ { print $2 }' "$scratch/wrk") requests/s, none lost"
}

# A port that is free now; whoever takes it before nginx does makes this test fail.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_nginx() {
  local prefix=$scratch/nginx port=$1
  mkdir "$prefix"
  quietly openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout "$prefix/key.pem" -out "$prefix/cert.pem"
  sed -e "s|listen 443 ssl|listen 127.0.0.1:$port ssl|" -e "s|server 127.0.0.1:8080|server ${service_url#http://}|" \
    -e "s|tasks.example;|localhost;|" -e "s|/etc/ssl/tasks.example.pem|$prefix/cert.pem|" \
    -e "s|/etc/ssl/private/tasks.example.key|$prefix/key.pem|" "$here/nginx-site.conf" >"$prefix/site.conf"
  cat >"$prefix/nginx.conf" <<CONF
daemon off;
pid $prefix/nginx.pid;
error_log $prefix/error.log;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path $prefix/body;
    proxy_temp_path $prefix/proxy;
    fastcgi_temp_path $prefix/fastcgi;
    uwsgi_temp_path $prefix/uwsgi;
    scgi_temp_path $prefix/scgi;
    include $prefix/site.conf;
}
CONF
  nginx -p "$prefix" -e "$prefix/error.log" -c "$prefix/nginx.conf" &
  nginx_pid=$!
  wait_until 10 nginx_answers "$port" || fail "nginx does not start: $(cat "$prefix/error.log")"
}

nginx_answers() { tls_curl --output /dev/null "https://localhost:$1/openapi.json" 2>/dev/null; }

tls_curl() { curl --silent --show-error --noproxy '*' --globoff --cacert "$scratch/nginx/cert.pem" "$@"; }

through_nginx() {
  local base=https://localhost:$nginx_port status=(--write-out '%{http_code}')
  expect 202 "$(tls_curl "${status[@]}" --output "$scratch/nginx.json" --header 'Transfer-Encoding: chunked' \
    --json '{"text":"Go one"}' "$base/tasks")" 'POST in chunks'
  expect 404 "$(tls_curl "${status[@]}" --output /dev/null "$base/tasks/task[4000000]")" 'no such task'
  expect 413 "$(head -c 2000000 /dev/zero | tls_curl "${status[@]}" --output /dev/null --data-binary @- "$base/tasks")" 'too long'
  "$scratch/venv/bin/python" "$here/clients/pool.py" "$base" 1000 "$scratch/nginx/cert.pem" | tee "$scratch/pooled"
  wrk -t2 -c256 -d5s "$base/tasks/task%5B0%5D" | tee "$scratch/wrk"
  ! grep -E 'Socket errors|Non-2xx' "$scratch/wrk" || fail 'requests were lost'
  # It says that of the 413.
  ! grep -E '\[(error|crit|alert|emerg)\]' "$scratch/nginx/error.log" | grep -v 'too large body' || fail 'nginx complains'
  say "$(nginx -v 2>&1 | cut -d ' ' -f 3): $(cat "$scratch/pooled"); wrk $(awk '/^Requests\/sec/ { print $2 }' "$scratch/wrk")/s"
}

# schemathesis_on LISTENER URL OPTION...
schemathesis_on() {
  (cd "$scratch" && SCHEMATHESIS_HOOKS=schemathesis_hooks PYTHONPATH=$here/clients PYTHONDONTWRITEBYTECODE=1 \
    "$scratch/venv/bin/schemathesis" --config-file "$here/clients/schemathesis.toml" run "$repository/src/http/openapi.json" --include-tag "$1" --url "$2" \
    "${schemathesis_options[@]}" "${@:3}") | tee "$scratch/schemathesis"
  say "$(grep -E '[0-9]+ generated' "$scratch/schemathesis" | tail -n 1 | sed 's/^ *//')"
}

schemathesis_public() { schemathesis_on public "$service_url"; }
schemathesis_admin() { schemathesis_on admin "$admin_url"; }
schemathesis_token() { schemathesis_on public "$service_url" --header "Authorization: Bearer $token"; }

# start FLAG...: room for all that schemathesis submits; a full queue is tried elsewhere.
start() { start_in_scratch --queue 100000 "$@"; }

setup_clients
cd "$repository"
quietly cargo build --release --locked
start
check 'curl' with_curl
check 'requests, 32 connections' with_requests
check 'wrk, 256 connections' with_wrk
nginx_port=$(free_port)
start_nginx "$nginx_port"
check 'nginx with TLS in front' through_nginx
check 'schemathesis, public' schemathesis_public
check 'schemathesis, admin' schemathesis_admin
stop_service
(umask 077 && say "$token" >"$scratch/token")
start --token-file "$scratch/token"
check 'schemathesis, with a token' schemathesis_token
stop_service
((failures == 0))
