# shellcheck shell=bash
# The benchmark's own PostgreSQL cluster: its tables, and what a measurement costs it. Source it.
#
# Never here: a setting of PostgreSQL. What is measured has the durability that PostgreSQL has by itself.

# shellcheck source-path=SCRIPTDIR source=service.sh
source "$(dirname "${BASH_SOURCE[0]}")/service.sh"
# shellcheck source-path=SCRIPTDIR source=bench_table.sh
source "$(dirname "${BASH_SOURCE[0]}")/bench_table.sh"

# Set by bench.sh: finished rows in the small table, and in the large one.
small_rows=
# shellcheck disable=SC2034 # for those who source this
large_rows=

cluster=
database_url= # of the database in use
holder_pid=   # the psql that holds a transaction open
cluster_runs=

start_cluster() {
  cluster=$scratch/cluster
  "$taskstats" db start --data "$cluster" >"$scratch/url"
  cluster_runs=yes
  database_url=$(<"$scratch/url")
  use_database small
}

stop_cluster() {
  [[ -n $cluster_runs ]] || return 0
  cluster_runs=
  "$taskstats" db stop --data "$cluster"
}

# use_database NAME: makes it, with the schema, when it is not there.
use_database() {
  local administration
  administration=$(<"$scratch/url")
  # Its path is the database: postgresql://…/taskstats?…
  database_url=${administration/\/taskstats/\/$1}
  if ! sql 'SELECT 1' >/dev/null 2>&1; then
    psql --no-psqlrc --quiet "$administration" --command "CREATE DATABASE $1 TEMPLATE template0"
    psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 "$database_url" --file "$repository/schema.sql" >/dev/null 2>&1
  fi
}

# sql COMMAND: bare values out.
sql() {
  psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 "$database_url" --command "$1"
}

# insert_finished COUNT: rows as they are after a success.
insert_finished() {
  sql "INSERT INTO go_tasks (id, text, status, words, bytes, runes, lease_owner, lease_epoch, started_at, finished_at)
       SELECT 'task[' || nextval('go_task_numbers') || ']', 'the quick brown fox jumps over the lazy dog', 'SUCCEEDED',
              9, 43, 43, 'bench', 1, clock_timestamp(), clock_timestamp()
         FROM generate_series(1, $1)"
}

# insert_queued COUNT
insert_queued() {
  sql "INSERT INTO go_tasks (id, text, status)
       SELECT 'task[' || nextval('go_task_numbers') || ']', 'the quick brown fox jumps over the lazy dog', 'QUEUED'
         FROM generate_series(1, $1)"
}

# The state that every measurement begins with, limits and product alike: finished rows that PostgreSQL has statistics of,
# and a checkpoint just behind.
prepare_table() {
  if [[ $state == '' ]]; then
    use_database small
    sql "TRUNCATE go_tasks, go_task_effects"
    sql "SELECT setval('go_task_numbers', 0, false)" >/dev/null
    insert_finished "$small_rows"
    sql 'VACUUM ANALYZE go_tasks'
  else
    use_database large
  fi
  sql 'CHECKPOINT'
}

# The large table: without indexes first, then as schema.sql makes it.
make_large_table() {
  use_database large
  sql "DO \$\$ DECLARE it record; BEGIN
         FOR it IN SELECT conname FROM pg_constraint WHERE conrelid = 'go_tasks'::regclass AND contype = 'p' LOOP
           EXECUTE format('ALTER TABLE go_tasks DROP CONSTRAINT %I', it.conname);
         END LOOP;
         FOR it IN SELECT indexname FROM pg_indexes WHERE tablename = 'go_tasks' LOOP
           EXECUTE format('DROP INDEX %I', it.indexname);
         END LOOP;
         COMMENT ON TABLE go_tasks IS NULL;
       END \$\$"
  insert_finished "$1"
  psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 "$database_url" --file "$repository/schema.sql" >/dev/null 2>&1
  sql 'VACUUM ANALYZE go_tasks'
  sql 'CHECKPOINT'
}

# hold_transaction: an old snapshot, kept until release_transaction. Nothing that dies from now on can be cleaned away.
hold_transaction() {
  mkfifo "$scratch/holder"
  psql --no-psqlrc --quiet --tuples-only --no-align "$database_url" <"$scratch/holder" >"$scratch/holder.out" 2>&1 &
  holder_pid=$!
  exec {holder_input}>"$scratch/holder"
  printf 'BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM go_task_effects;\n' >&"$holder_input"
  wait_until 30 test -s "$scratch/holder.out"
}

release_transaction() {
  [[ -n $holder_pid ]] || return 0
  exec {holder_input}>&-
  wait "$holder_pid" || true
  holder_pid=
  rm -f "$scratch/holder" "$scratch/holder.out"
}

# The number that the next task will get.
next_number() { sql 'SELECT last_value + is_called::int FROM go_task_numbers'; }

nothing_is_open() {
  [[ $(sql "SELECT EXISTS (SELECT FROM go_tasks WHERE status IN ('QUEUED', 'RUNNING'))") == f ]]
}

# Looks rarely, because looking is work for the server, too: where dead rows cannot be cleaned away, much.
await_the_end() {
  local end=$((SECONDS + patience)) begin=${EPOCHREALTIME/[.,]/} took
  until nothing_is_open; do
    ((SECONDS < end)) || fail "tasks are still open after $patience s"
    took=$((${EPOCHREALTIME/[.,]/} - begin))
    sleep "$(awk -v us="$took" 'BEGIN { printf "%.1f", 0.3 + us * 10 / 1e6 }')"
    begin=${EPOCHREALTIME/[.,]/}
  done
}

# Longest wait for the tasks of a measurement to end, seconds.
patience=3600

# ------------------------------------------------------------------ costs

wal_position() { sql "SELECT pg_current_wal_lsn() - '0/0'"; }

ticks_a_second=$(getconf CLK_TCK)

# cpu_of PID: CPU seconds of a process and all its threads.
cpu_of() {
  awk -v hz="$ticks_a_second" '{ sub(/^.*\) /, ""); printf "%.2f\n", ($12 + $13) / hz }' "/proc/$1/stat"
}

# CPU seconds of all PostgreSQL processes: those that live, and those that the postmaster has seen die.
cpu_of_postgresql() {
  local postmaster
  read -r postmaster <"$cluster/cluster/postmaster.pid"
  # A process may go while we look.
  { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v hz="$ticks_a_second" -v postmaster="$postmaster" '
    { pid = $1; sub(/^.*\) /, "") }
    pid == postmaster { ticks += $12 + $13 + $14 + $15 }
    $2 == postmaster { ticks += $12 + $13 }
    END { printf "%.2f\n", ticks / hz }'
}

# memory_peak PID: the most that was ever resident, MiB.
memory_peak() { awk '/^VmHWM/ { printf "%.1f\n", $2 / 1024 }' "/proc/$1/status"; }
