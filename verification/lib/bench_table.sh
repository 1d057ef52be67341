# shellcheck shell=bash
# What was measured, and the table of it beside the goals. Source it.
#
# $results has a line for each measurement of each round: name, value, unit. A name ends with the state of the table it was
# measured on: nothing for the small one, @large, @held.


# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

results=
scratch=
state=
round=
rounds=
spread_note=

# record NAME VALUE UNIT
record() {
  printf '%s\t%s\t%s\n' "$1$state" "$2" "$3" >>"$results"
  printf 'round %s  %-28s %12s %s\n' "$round" "$1$state" "$2" "$3"
}

# summary NAME: median, spread in percent of it, and unit; nothing when it was not measured.
summary() {
  awk -F '\t' -v name="$1" '$1 == name { print $2 "\t" $3 }' "$results" | sort -n | awk -F '\t' '
    { value[NR] = $1; unit = $2 }
    END {
      if (!NR) exit
      median = NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2
      # Of an even number of rounds it is a mean, with more digits than it is worth.
      median = sprintf(median < 100 ? "%.3f" : "%.0f", median) + 0
      printf "%s ", median < 1e6 ? median : sprintf("%.0f", median)
      print (median ? sprintf("%.0f", (value[NR] - value[1]) / median * 100) : 0), unit
    }'
}

median_of() { summary "$1" | cut -d ' ' -f 1; }
was_measured() { [[ -n $(summary "$1") ]]; }

# The name whose median is the largest.
largest_of() {
  local name
  for name in "$@"; do say "$(median_of "$name") $name"; done | sort -n | tail -n 1 | cut -d ' ' -f 2
}

table_format='%-4s %-39s %-26s %-26s %-26s %6s  %s\n'

# judge ID WORK NAME '>='|'<=' GOAL [BASE [WHAT_IT_IS]]: one line, if it was measured. With BASE the ratio to it has to reach
# the goal, else the value itself. GOAL - : nothing was promised.
judge() {
  local id=$1 work=$2 name=$3 relation=$4 goal=$5 base=${6-} value spread unit limit='' ratio='' verdict
  was_measured "$name" || return 0
  read -r value spread unit < <(summary "$name")
  local measured="$value $unit" wanted="$relation $goal $unit" judged=$value
  [[ $rounds == 1 ]] || measured+=" (${spread}%)"
  if [[ -n $base ]]; then
    was_measured "$base" || return 0
    local base_value base_spread
    read -r base_value base_spread unit < <(summary "$base")
    limit="$base_value"
    [[ $rounds == 1 ]] || limit+=" (${base_spread}%)"
    limit+=" $base"
    wanted="$relation $goal x ${7-$base}"
    ratio=$(awk -v a="$value" -v b="$base_value" 'BEGIN { printf "%.2f", b ? a / b : 0 }')
    judged=$(awk -v a="$value" -v b="$base_value" 'BEGIN { print b ? a / b : 0 }')
  fi
  if [[ $goal == - ]]; then
    wanted=reported verdict=-
  elif awk -v judged="$judged" -v goal="$goal" -v relation="$relation" \
    'BEGIN { exit !(relation == ">=" ? judged >= goal : judged <= goal) }'; then
    verdict=met
  else
    verdict='NOT MET'
  fi
  # shellcheck disable=SC2059 # the format is above
  printf "$table_format" "$id" "$work" "$wanted" "$measured" "$limit" "$ratio" "$verdict"
}

print_table() {
  local best_batches
  best_batches=$(largest_of L2.c8 L2.c32)
  # shellcheck disable=SC2059
  printf "$table_format" '' work goal "measured${spread_note}" "compared with" ratio verdict
  judge T1 '64 clients, POST to SUCCEEDED' T1.rate '>=' 2.0 L1.c32
  judge T1 '  p99 of POST' T1.p99 '<=' 50
  judge T1 '  p50 of POST' T1.p50 '<=' -
  judge T1 '  answered POSTs alone' T1.posts '>=' -
  judge T2 'drain of QUEUED rows' T2.rate '>=' 0.6 "$best_batches" L2
  judge T3 '50/s with Prefer: wait, p50' T3.p50 '<=' 1.5 cycle.c1 'a lone cycle'
  judge T3 '  of it from INSERT to claim' T3.to_claim '<=' -
  judge T3 '  of it from claim to end' T3.to_end '<=' -
  judge T3 '  p99' T3.p99 '<=' 4 T3.p50 'p50'
  judge T3 '  p50 beside lone cycles at 50/s' T3.p50 '<=' - cycle.c1.at50
  judge T4 'GET of random ids, 64 clients' T4.get '>=' 0.5 select.c32
  judge T4 'GET /healthz, 30 clients' T4.healthz '>=' 0.6 constant.c30 'stock tiny_http'
  judge T4 '  beside a door without a look' T4.healthz '>=' - door.c30
  judge T4 '  and that beside stock tiny_http' door.c30 '>=' - constant.c30
  judge T5 'batches of 100, 8 clients' T5.rate '>=' 0.5 insert-100.c8 'inserts by 100'
  judge T5 '  tasks ended meanwhile' T5.rate.ended '>=' - "$best_batches" L2
  judge T5 '  the same with one worker' T5.alone '>=' - insert-100.c8
  judge_large_tables
  judge T7 'WAL for 1,000 tasks' T7.wal '<=' 1 L1.wal
  judge T7 'CPU of the service' T7.cpu_service '<=' -
  judge T7 'CPU of PostgreSQL' T7.cpu_postgresql '<=' - L1.cpu_postgresql
  judge T7 'CPU of the load generator' T7.cpu_load '<=' -
  judge T8 'resident, 64 clients' T8.clients '<=' 32
  judge T8 'resident, with a backlog' T8.backlog '<=' 40
  judge T9 'count, a large text' T9.large '>=' 5 T9.large_wc 'wc -wcm'
  judge T9 '  beside only reading it' T9.large '>=' - T9.large_read 'reading'
  judge T9 'count, many small files' T9.small '>=' 2 T9.small_wc 'wc -wcm'
  judge T9 '  beside only reading them' T9.small '>=' - T9.small_read 'reading'
  judge T9 'memory, beside a hundredth of the text' T9.large_memory '<=' 1.5 T9.part_memory 'that'
  judge T10 'lease mode, one instance' T10.one '>=' 0.7 T1.rate
  judge T10 'lease mode, three instances' T10.three '>=' 1.0 T10.one
  judge T10 '  commits of three for 1,000 tasks' T10.three.commits '<=' - T10.one.commits
  judge T10 '  pgbench, 12 rows a commit' cycle-12 '>=' - cycle-36
  print_unbatched_limits
}

# T6: what was measured on the small table, on the large one, and there with a transaction held open.
judge_large_tables() {
  local name
  for name in T1.rate T2.rate T4.get; do
    judge T6 "${name%.*}, large table" "$name@large" '>=' 0.9 "$name"
    judge T6 "${name%.*}, and a transaction held open" "$name@held" '>=' 0.7 "$name"
  done
  for name in L1.c32 select.c32; do
    judge T6 "  pgbench alone, $name, large table" "$name@large" '>=' - "$name"
    judge T6 "  and a transaction held open" "$name@held" '>=' - "$name"
  done
  # A time: what takes 1 / 0.9 of it is 0.9 times as fast.
  judge T6 'T3 p50, large table' T3.p50@large '<=' 1.11 T3.p50
  judge T6 'T3 p50, and a transaction held open' T3.p50@held '<=' 1.43 T3.p50
}

# Limits that no goal is about, and refusals, of which there should be none.
print_unbatched_limits() {
  local name
  say
  say 'also measured:'
  for name in L1.c8 L1.c64 L2.c8 L2.c32 insert.c32 insert-100.c8 T1.refused T3.unfinished T5.rate.refused T8.refused; do
    was_measured "$name" && printf '  %-16s %s\n' "$name" "$(summary "$name" | awk '{ print $1, $3, "(" $2 "%)" }')"
  done
  return 0
}

# ------------------------------------------------------------------ circumstances

print_circumstances() {
  say "machine      $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)"
  say "kernel       $(uname -r), $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)"
  say "storage      $(df --output=fstype,source "$scratch" | tail -n 1 | tr -s ' ') ($scratch)"
  say "load before  $(cut -d ' ' -f 1-3 /proc/loadavg)"
  say "taskstats    $(commit)"
  say "  flags      ${BENCH_SERVE:-none but --queue and --lease}"
  say "rustc        $(rustc --version)"
  say "PostgreSQL   $(sql 'SHOW server_version')"
  say "  settings   $(important_settings)"
  say "  not as PostgreSQL has them by itself: $(changed_settings)"
}

commit() {
  local changes
  changes=$(git -C "$repository" status --porcelain 2>/dev/null) || changes='?'
  say "$(git -C "$repository" rev-parse --short HEAD 2>/dev/null || say 'no commit')${changes:+ with changes}"
}

important_settings() {
  sql "SELECT string_agg(name || '=' || current_setting(name), ' ' ORDER BY name) FROM pg_settings WHERE name IN
       ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method', 'shared_buffers', 'max_wal_size',
        'commit_delay', 'max_connections', 'autovacuum')"
}

# What initdb finds out about the machine and what says where the server is changes nothing here.
changed_settings() {
  sql "SELECT coalesce(string_agg(name || '=' || setting, ' ' ORDER BY name), 'nothing') FROM pg_settings
        WHERE source IN ('configuration file', 'command line', 'environment variable', 'database', 'user')
          AND setting IS DISTINCT FROM boot_val
          AND name !~ '^(lc_|default_text_search|TimeZone|log_timezone|DateStyle|listen_addresses|unix_socket|port)'"
}
