//! Every limit and timeout of the service, with its unit in its type or name and its reason. Nothing here is read from
//! the outside: what people may set is in `cli::config`, whose defaults come from here.

use std::time::Duration;

// ------------------------------------------------------------------ log

/// One line per fault and interval: a lost database must not fill the disk.
pub const LOG_INTERVAL: Duration = Duration::from_secs(1);

// ------------------------------------------------------------------ HTTP: the front door

/// Client connections at once, per listener; lowered at start to what RLIMIT_NOFILE allows.
pub const CONNECTIONS: usize = 1024;
/// A request line with its headers, bytes. Ours are a few hundred; beyond this: 431.
pub const HEAD_BYTES: usize = 16 * 1024;
/// Header fields in one head; beyond this: 431.
pub const HEAD_FIELDS: usize = 64;
/// Default of `--max-body`, bytes; beyond it: 413, without reading.
pub const BODY_BYTES: usize = 1024 * 1024;
/// Largest reply, bytes: the front door buffers one whole reply per client.
pub const REPLY_BYTES: usize = 1024 * 1024;
/// What is wrong, in an error reply, characters: it may name a field or a path as long as a body or a head.
pub const DETAIL_CHARS: usize = 300;
/// From the first byte of a head to its last: slower is an attack or a dead link. 408.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// From the end of the head to the end of the body: 1 MiB at 35 kB/s. 408.
pub const BODY_TIME: Duration = Duration::from_secs(30);
/// The same when over half of [`BODIES_BYTES`] are in use: a crowd of slow uploaders must not lock out everybody else.
pub const BODY_TIME_CROWDED: Duration = Duration::from_secs(2);
/// Room that a body of unknown speed gets at first, bytes; then as much again as has come. All connections together must
/// not fill [`BODIES_BYTES`] by announcing bodies: this is a quarter of it.
pub const BODY_STEP: usize = 16 * 1024;
/// An idle keep-alive connection is closed after this.
pub const IDLE_TIME: Duration = Duration::from_secs(60);
/// The same when over half of the connections are in use: room for those who work.
pub const IDLE_TIME_CROWDED: Duration = Duration::from_secs(1);
/// A client must take a whole reply within this.
pub const WRITE_TIME: Duration = Duration::from_secs(10);
/// A handler must answer within this: above every database bound below.
pub const HANDLER_TIME: Duration = Duration::from_secs(90);
/// Longest `Prefer: wait`, counted as this when longer: with the database's patience well below [`HANDLER_TIME`].
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often those who wait are looked through for whose time is over, or whose client is gone.
pub const WAIT_TICK: Duration = Duration::from_millis(250);
/// How often their rows are read without a hint: a task may have been ended by another instance, or by hand.
pub const WAIT_POLL: Duration = Duration::from_secs(1);
/// How often blocked socket calls look at their deadline and at a shutdown.
pub const TICK: Duration = Duration::from_millis(250);
/// The tick of a client whose answer is long in coming doubles up to this: a thousand that wait would otherwise look up four
/// thousand times a second. Deadlines are kept, and a shutdown wakes them.
pub const LONG_TICK: Duration = Duration::from_secs(2);
/// Time a look at rows gets at least, however late those are who ask: with the database's patience below the second that a
/// request may take beyond `--db-timeout`.
pub const LOOK_MIN: Duration = Duration::from_millis(100);
/// A look at rows for askers none of whom has waited for one yet gets this long; then they are looked for again, on another
/// connection: all who ask wait for one look, and one silent backend must not cost them their answer.
pub const FIRST_LOOK: Duration = Duration::from_millis(500);
/// Shortest tick: the kernel takes 0 for no timeout at all.
pub const SHORT_TICK: Duration = Duration::from_millis(1);
/// Pause after a failed accept (no file descriptors left): the fault passes or it does not, but never spins.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Client connections of the admin listener: a few scrapers and browsers, and it must not eat the public one's share.
pub const ADMIN_CONNECTIONS: usize = 32;
/// File descriptors one client may need: its socket, and the three ends of its internal connection.
pub const FDS_PER_CONNECTION: usize = 4;
/// File descriptors kept from clients: the database (4 a connection), refused clients, signals, logs, the listeners.
pub const FD_RESERVE: usize = 256;
/// Files that must be free when an internal connection is opened: its three, one for an accept() that is under way, and
/// four for each of two connections to the database that may be opened meanwhile.
pub const FILES_AT_HAND: usize = 12;
/// Request bodies in flight at once, bytes, per listener: what a crowd of uploaders may cost in memory. Beyond: 503.
pub const BODIES_BYTES: usize = 64 * 1024 * 1024;
/// After a last answer the socket is read on for this long, so that the answer is not lost to a reset.
pub const LINGER_TIME: Duration = Duration::from_secs(1);
/// And for at most this many bytes: nobody may keep a thread busy with throwing away.
pub const LINGER_BYTES: usize = 16 * 1024 * 1024;
/// Clients refused for want of room that are seen off at once; further ones are just closed.
pub const LINGERERS: usize = 32;
/// Stack of a client's and of a handler's thread, bytes: their buffers are on the heap.
pub const HTTP_STACK: usize = 256 * 1024;
/// Idle handler threads that always stay.
pub const CREW_MIN: usize = 4;
/// Handler threads beyond one per client: for pings, and for handlers their client gave up on.
pub const CREW_SPARE: usize = 16;
/// Handler threads nobody needed during a whole period of this length retire.
pub const CREW_PERIOD: Duration = Duration::from_secs(10);
/// An internal connection unused for this long is closed.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(60);
/// A request waits this long for an internal connection. 503.
pub const UPSTREAM_WAIT: Duration = Duration::from_secs(5);
/// A new internal connection must answer its ping within this.
pub const PING_TIME: Duration = Duration::from_secs(2);
/// So many lost pings in a row: tiny_http is dead, and only a new process helps.
pub const PINGS_LOST: u32 = 8;
/// Longest path of the internal socket, bytes: `sun_path` holds 108.
pub const SOCKET_PATH_BYTES: usize = 100;

/// Shortest bearer token, bytes: 32 of base64 are 192 random bits, of hex 128. Shorter ones can be guessed.
pub const TOKEN_BYTES_MIN: usize = 32;
/// Longest bearer token, bytes: it has to fit into a head with room for the rest.
pub const TOKEN_BYTES_MAX: usize = 4096;

/// A socket directory that nobody answers at is cleared away when it is older than this.
pub const SWEEP_AGE: Duration = Duration::from_secs(60);

// ------------------------------------------------------------------ database

/// Default of `--db-timeout`: statement_timeout of every session. The callers wait [`REPLY_MARGIN`] longer.
pub const DB_TIMEOUT: Duration = Duration::from_secs(2);
/// A caller gives up this long after the database timeout: the server's own timeout gets to speak first.
pub const REPLY_MARGIN: Duration = Duration::from_millis(500);
/// How long a caller of the pool waits for a connection. Small: r2d2's reconnect delay grows to half of it.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a start waits for its first connection: a busy machine is slow to fork backends.
pub const START_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The server looks this often whether a client that runs a statement still lives, and frees its locks if not.
pub const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// A connection unused for this long is tried with an empty query first, since a restart of the server only shows there. No
/// restart is this short, and work that comes more often pays nothing.
pub const TRUSTED_IDLE: Duration = Duration::from_millis(25);
/// A pooled connection that nobody needed for this long is closed: a crowd's connections go when the crowd has gone.
pub const POOL_IDLE: Duration = Duration::from_secs(60);
/// Rows in one statement of a lane: 100 rows already cost a tenth of 100 statements; more only adds latency.
pub const BATCH_ROWS: usize = 128;
/// A submission whose number another row has is tried so many times with new ones.
pub const NUMBER_TRIES: usize = 8;
/// Stack of a lane's thread, bytes: connecting and authenticating happens on it.
pub const LANE_STACK: usize = 512 * 1024;
/// A statement that takes longer holds up its lane, and the next ones go through a stand-in. A commit takes a millisecond; a
/// slow disk's is still shared by all that came in this time.
pub const LANE_HELD_UP: Duration = Duration::from_millis(100);
/// Bound on a start-up step (connect, lock, recover) that asks the database more than one question.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Threads of one lane that may stand in for those that are held up: by a locked row, a slow disk, a silent backend.
pub const STAND_INS: usize = 3;

// ------------------------------------------------------------------ tasks

/// Default of `--workers`: a task is CPU work for microseconds and waits for two commits, and with so many at once each commit
/// is shared by many. Each of them may hold a text of [`BODY_BYTES`].
pub const WORKERS: usize = 256;
/// Threads that share those: each may hold a batch, and more threads than this only wait for the same commits. An analysis that
/// takes long delays those claimed with it, so up to this number there is a thread for each task.
pub const WORKER_THREADS: usize = 8;
/// Default of `--queue`: tasks admitted beyond those being worked on.
pub const QUEUE_SLOTS: usize = 256;
/// First and longest pause between two tries of a write that must get through (chapter 39).
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(250));
/// The poller looks this often for rows that are not in flight: with [`POLL_AGE`] less than the second within which an idle
/// instance learns of another's submission, and of an expired lease.
pub const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Tasks in flight for which an empty table keeps its room: more come with a burst, and their room goes with it.
pub const IN_FLIGHT_KEPT: usize = 1024;
/// Rows in one look of the poller: far more than permits, so that a backlog costs few looks.
pub const POLL_ROWS: i64 = 1024;
/// A row younger than this is still on its way from the INSERT to the channel: the poller leaves it to its submitter.
pub const POLL_AGE: Duration = Duration::from_millis(400);
/// Longest `Idempotency-Key`, bytes: any UUID or hash fits, and the index stays small.
pub const KEY_BYTES: usize = 255;
/// Hints about watched tasks not yet taken: more than clients who could wait for one.
pub const WATCH_HINTS: usize = 4096;
/// Lines of one batch. Its reply has a line for each, and must fit into [`REPLY_BYTES`].
pub const BATCH_LINES: usize = 5000;
/// Bytes of a failure reason kept in the row; the rest is cut.
pub const REASON_BYTES: usize = 1024;
/// Default of `--drain-timeout`: how long SIGTERM waits for work in hand.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a shutdown waits for requests in hand to be answered.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

// ------------------------------------------------------------------ leases

/// Shortest `serve --lease`: a renewal at a third of it must survive a busy machine.
pub const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// Leases are renewed each time this part of them has passed: two more tries fit before they expire.
pub const RENEWALS_PER_LEASE: u32 = 3;
/// A cancel of our task that came through another instance is noticed within this.
pub const CANCEL_LOOK: Duration = Duration::from_secs(1);
/// Default of `--max-attempts`: a task that kills its owner must not kill every owner there is.
pub const LEASE_ATTEMPTS: i64 = 5;
/// Candidates in one look of `lease run`.
pub const LEASE_LOOK: i64 = 16;

// ------------------------------------------------------------------ one instance

/// The holder of the instance lock proves its connection this often.
pub const KEEPER_INTERVAL: Duration = Duration::from_millis(250);
/// A start waits this long for the lock: a killed predecessor's backend needs [`CLIENT_CHECK_INTERVAL`] to notice.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Bound on one try to get a lost lock back: the tries go on, so a silent server costs only this one.
pub const RELOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// Readiness is red when the database has proved nothing for longer than this.
pub const PROOF_AGE: Duration = Duration::from_secs(3);
/// Stack of a worker, bytes: an analyser of a library's user may want some depth.
pub const WORKER_STACK: usize = 1024 * 1024;

// ------------------------------------------------------------------ private PostgreSQL

/// How long its server may take to start: crash recovery of a few GiB of WAL on a slow disk.
pub const PG_START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a fast stop may take: it ends with a checkpoint.
pub const PG_STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// From the end of the pid file to the end of the process: it only has to exit.
pub const PG_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one start or stop waits for another on the same directory: longer than either may take.
pub const PG_LOCK_TIMEOUT: Duration = Duration::from_secs(180);
/// How long the backends of a killed server, or the initdb of a killed start, may delay a start: they notice it within
/// milliseconds.
pub const PG_ORPHAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two checks of a condition that is waited for.
pub const PG_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The part at the end of the server's log that is searched for an error, bytes.
pub const PG_LOG_TAIL_BYTES: u64 = 64 * 1024;
/// Names tried for the directory of the server's socket: each that cannot be used belongs to another account or server.
pub const PG_SOCKET_DIRECTORIES: u32 = 10;
