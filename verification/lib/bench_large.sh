# shellcheck shell=bash
# T6: T1 to T4 on a table with millions of finished rows, and there with an old snapshot held open. Source it.

# shellcheck source-path=SCRIPTDIR source=bench_product.sh
source "$(dirname "${BASH_SOURCE[0]}")/bench_product.sh"

prepare_large_table() {
  say "building a table of $large_rows finished rows"
  make_large_table "$large_rows"
  say "it has $(sql "SELECT pg_size_pretty(pg_total_relation_size('go_tasks'))") with its indexes, after $SECONDS s"
}

# One round of each. The table is not emptied between measurements: it grows by a few per cent.
measure_large_tables() {
  state=@large
  measure_large_table
  state=@held
  sql 'VACUUM go_tasks'
  hold_transaction
  measure_large_table
  release_transaction
  sql 'VACUUM go_tasks'
  state=
}

# pgbench tells what PostgreSQL alone loses there.
measure_large_table() {
  limit_cycles 32
  product_posts
  product_drain
  product_waits
  limit_selects
  product_reads
}
