//! Owners that lose their leases without dying: they stop, write nothing more and say so. And owners without leases.

use std::time::{Duration, Instant};

use taskstats::store::Finish;
use taskstats::task::{Analysis, Counts, Status};

use crate::harness::inside::{Held, Inside};
use crate::harness::{Database, PgCluster, Proxy, Serve, stalled_since, until, until_within};
use crate::leases::{FileGate, until_running};

const TWO_WORDS: Analysis = Analysis::Counted(Counts { words: 2, bytes: 6, runes: 6 });

#[test]
fn an_owner_whose_task_was_taken_stops_and_writes_nothing() {
    let database = Database::with_schema();
    let (analyser, holder) = Held::pair();
    let inside = Inside::leased(&database.dsn(), analyser, 1, Duration::from_secs(1));
    let id = inside.service.submit("Go one".into()).expect("accepted").id;
    let stop = holder.begun.recv().expect("it begins");
    let thief = database.leased_store("thief", Duration::from_secs(60), 5);
    database.expire(id.as_str());
    assert_eq!(thief.claim(&id).expect("an answer").expect("taken over").epoch, 2);
    until_within(Duration::from_secs(1), "the analyser is told", || stop.requested().then_some(()));
    let before = database.rows("SELECT * FROM go_tasks");
    holder.results.send(TWO_WORDS).expect("it waits");
    // The only worker takes the next task when it is through with the one that it lost.
    inside.service.submit("Go one".into()).expect("accepted");
    holder.begun.recv().expect("the next one begins");
    assert_eq!(database.rows("SELECT * FROM go_tasks WHERE id = 'task[0]'"), before);
    assert_eq!(database.rows("SELECT count(*) FROM go_task_effects"), "0");
    holder.results.send(TWO_WORDS).expect("it waits");
    assert!(thief.finish(&Finish { id, epoch: 2, analysis: TWO_WORDS }).expect("an answer").is_some());
    until("the other has ended", || (database.task("task[1]") == "SUCCEEDED|2|6|6").then_some(()));
}

#[test]
fn an_owner_cut_off_from_the_database_stops_when_its_lease_is_over() {
    let ttl = Duration::from_secs(1);
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let (analyser, holder) = Held::pair();
    let inside = Inside::leased(&database.dsn_through(&proxy), analyser, 1, ttl);
    let id = inside.service.submit("Go one".into()).expect("accepted").id;
    let stop = holder.begun.recv().expect("it begins");
    stalled_since(Instant::now());
    let cut_off = Instant::now();
    proxy.silence(true);
    // The lease was asked for before; no answer can come for longer than the lease lasts.
    until("the analyser is told", || stop.requested().then_some(()));
    let told = cut_off.elapsed().saturating_sub(stalled_since(cut_off));
    println!("told after {told:?}, lease {ttl:?}");
    assert!(told <= ttl + Duration::from_millis(500), "{told:?}");
    database.wait_for_expiry(id.as_str());
    let thief = database.leased_store("thief", Duration::from_secs(60), 5);
    assert_eq!(thief.claim(&id).expect("an answer").expect("taken over").epoch, 2);
    let before = database.rows("SELECT * FROM go_tasks");
    holder.results.send(TWO_WORDS).expect("it waits");
    proxy.silence(false);
    until("the place is free", || inside.service.submit("Go one".into()).ok());
    holder.begun.recv().expect("the next one begins");
    assert_eq!(database.rows("SELECT * FROM go_tasks WHERE id = 'task[0]'"), before);
    holder.results.send(TWO_WORDS).expect("it waits");
}

#[test]
fn an_owner_that_comes_back_from_the_dark_says_what_it_lost() {
    let database = Database::with_schema();
    let (gate, proxy) = (FileGate::shut(&database), Proxy::before(PgCluster::shared().socket_dir()));
    let a = Serve::gated(&database.dsn_through(&proxy), gate.path(), &["--lease", "1s", "--workers", "2"]);
    a.client().submit("Go one");
    a.client().submit("Go one");
    until_running(&database, 2);
    proxy.silence(true);
    let b = Serve::on(&database, &["--lease", "1s"]);
    for id in ["task[0]", "task[1]"] {
        b.client().wait_for(id, "SUCCEEDED");
    }
    // Both are said, while their analysers do not listen, and however much else there is to say of a lost database.
    until("it says what it lost", || {
        let said = |id: &str| a.stderr().iter().any(|line| line.contains(&format!("{id}: lease lost, epoch 1")));
        (said("task[0]") && said("task[1]")).then_some(())
    });
    let before = database.rows("SELECT * FROM go_tasks ORDER BY id");
    proxy.silence(false);
    gate.open();
    until("its workers let go", || {
        let let_go = |id: &str| a.stderr().iter().any(|line| line.contains(&format!("{id}: lease lost: epoch 1")));
        (let_go("task[0]") && let_go("task[1]")).then_some(())
    });
    assert_eq!(database.rows("SELECT * FROM go_tasks ORDER BY id"), before);
    assert_eq!(database.rows("SELECT DISTINCT lease_epoch, words FROM go_task_effects"), "2|2");
    let id = a.client().submit("Go one");
    a.client().wait_for(&id, "SUCCEEDED");
}

#[test]
fn lost_backends_cost_no_lease() {
    let database = Database::with_schema();
    let gate = FileGate::shut(&database);
    let a = Serve::gated(&database.dsn(), gate.path(), &["--lease", "2s", "--workers", "2"]);
    a.client().submit("Go one");
    a.client().submit("Go one");
    until_running(&database, 2);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        database.rows(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        std::thread::sleep(Duration::from_millis(300)); // the rate of the disturbance, not a wait for anything
    }
    gate.open();
    a.client().wait_for("task[0]", "SUCCEEDED");
    a.client().wait_for("task[1]", "SUCCEEDED");
    assert_eq!(database.rows("SELECT DISTINCT lease_epoch FROM go_tasks"), "1");
}

#[test]
fn a_locked_row_costs_no_other_lease() {
    let database = Database::with_schema();
    let (analyser, holder) = Held::pair();
    let inside = Inside::leased(&database.dsn(), analyser, 2, Duration::from_secs(1));
    let begin = || {
        let id = inside.service.submit("Go one".into()).expect("accepted").id;
        (id, holder.begun.recv().expect("it begins"))
    };
    let ((locked, locked_stop), (other, other_stop)) = (begin(), begin());
    let mut locker = database.connect();
    let mut lock = locker.transaction().expect("begin");
    lock.execute("SELECT FROM go_tasks WHERE id = $1 FOR UPDATE", &[&locked.as_str()]).expect("the lock");
    until("the locked row's owner gives up", || locked_stop.requested().then_some(()));
    // Two more leases' time: the other one holds on.
    let until_now = database.rows(&format!("SELECT lease_until FROM go_tasks WHERE id = '{other}'"));
    until("the other lease is renewed and renewed", || {
        let later = format!(
            "SELECT lease_until > '{until_now}'::timestamptz + interval '2 s' FROM go_tasks WHERE id = '{other}'"
        );
        (database.rows(&later) == "true").then_some(())
    });
    assert!(!other_stop.requested());
    lock.rollback().expect("rollback");
    holder.results.send(TWO_WORDS).expect("one waits");
    holder.results.send(TWO_WORDS).expect("the other waits");
    until("the locked one is run again", || holder.begun.try_recv().ok());
    holder.results.send(TWO_WORDS).expect("it waits");
    until("both have ended", || {
        let rows = database.rows("SELECT status, lease_epoch FROM go_tasks ORDER BY go_task_number(id)");
        (rows == "SUCCEEDED|2 SUCCEEDED|1").then_some(())
    });
}

#[test]
fn rows_with_and_without_leases_are_each_left_to_their_own_rule() {
    let database = Database::with_schema();
    let (plain_gate, gate) = (FileGate::shut(&database), FileGate::named(&database, "leased"));
    let mut plain = Serve::gated(&database.dsn(), plain_gate.path(), &["--workers", "1"]);
    plain.client().submit("of the plain one");
    until_running(&database, 1);
    let mut leased = Serve::gated(&database.dsn(), gate.path(), &["--workers", "1", "--lease", "1s"]);
    leased.client().submit("of the leased one");
    until_running(&database, 2);
    let row = |id: &str| database.rows(&format!("SELECT * FROM go_tasks WHERE id = '{id}'"));
    let owned =
        |id: &str| database.rows(&format!("SELECT status, lease_owner, lease_epoch FROM go_tasks WHERE id = '{id}'"));
    let (plain_row, leased_row) = (row("task[0]"), owned("task[1]"));

    // The plain one dies; the leased one goes on for longer than a lease and leaves its task alone.
    plain.kill();
    let renewed = database.rows("SELECT lease_until FROM go_tasks WHERE id = 'task[1]'");
    until("two leases' time", || {
        let later = format!(
            "SELECT lease_until > '{renewed}'::timestamptz + interval '2 s' FROM go_tasks WHERE id = 'task[1]'"
        );
        (database.rows(&later) == "true").then_some(())
    });
    assert_eq!(row("task[0]"), plain_row);
    let next = Serve::on(&database, &[]);
    assert_eq!(next.reported("failed"), "1");
    assert_eq!(database.task("task[0]"), "FAILED|0|0|0");
    assert_eq!(owned("task[1]"), leased_row, "recovery is not for leased rows");

    // The leased one dies; a plain one's poller and leader find nothing to do about it.
    leased.kill();
    database.wait_for_expiry("task[1]");
    let expired = row("task[1]");
    for _ in 0..3 {
        // A row that is in the table and in nobody's channel is found by the poller's next look.
        let id = database.store("beside").submit("Go one".into()).expect("submit");
        next.client().wait_for(id.as_str(), "SUCCEEDED");
    }
    assert_eq!(row("task[1]"), expired);
    let heir = Serve::on(&database, &["--lease", "1s"]);
    heir.client().wait_for("task[1]", "SUCCEEDED");
    assert!(owned("task[1]").ends_with("|2"), "{}", owned("task[1]"));
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks WHERE status = 'FAILED'"), "1");
}

#[test]
fn a_task_given_up_under_our_epoch_was_not_ended_by_us() {
    let database = Database::with_schema();
    let [a, b] = ["A", "B"].map(|owner| database.leased_store(owner, Duration::from_secs(60), 1));
    let id = a.submit("Go one".into()).expect("submit");
    let epoch = a.claim(&id).expect("an answer").expect("ours").epoch;
    database.expire(id.as_str());
    assert_eq!(b.settle_expired(), Ok(vec![(id.clone(), Status::Failed)]));
    // A's finish had no answer; it asks again, and then whether it was the one that ended the task.
    let finish = Finish { id, epoch, analysis: TWO_WORDS };
    assert_eq!(a.finish(&finish), Ok(None));
    assert_eq!(a.finished_by_us(&finish), Ok(false), "the result was dropped, and that has to be said");
}

#[test]
fn what_is_found_expired_again_and_again_is_claimed_once() {
    const PLACES: usize = 65; // one worker, and the queue of an `Inside`
    const EXPIRED: usize = 300; // more than places: the first of them are done when they are met again
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let (analyser, holder) = Held::pair();
    let inside = Inside::leased(&database.dsn_through(&proxy), analyser, 1, Duration::from_secs(60));
    (0..PLACES).for_each(|_| drop(inside.service.submit("Go one".into()).expect("a place")));
    database.run(&format!(
        "INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until)
         SELECT 'task[' || n || ']', 'left', 'RUNNING', 'gone', 1, clock_timestamp() - interval '1 hour'
           FROM generate_series(1001, 1000 + {EXPIRED}) n"
    ));
    let (looks, look) = (proxy.asked("ORDER BY lease_until"), "ORDER BY lease_until");
    until("many looks without a place", || (proxy.asked(look) >= looks + 6).then_some(()));
    let before = proxy.asked("SET status = 'RUNNING'");
    for _ in 0..PLACES + EXPIRED {
        holder.results.send(TWO_WORDS).expect("the worker waits");
    }
    until("all have ended", || {
        let open = database.rows("SELECT count(*) FROM go_tasks WHERE status <> 'SUCCEEDED'");
        (open == "0").then_some(())
    });
    // Two more looks, so that what is left on a list would be claimed, too.
    let looks = proxy.asked(look);
    until("two more looks", || (proxy.asked(look) >= looks + 2).then_some(()));
    let claims = proxy.asked("SET status = 'RUNNING'") - before;
    // A look may find one that is just being claimed: a few more than there are tasks.
    assert!(claims < 2 * (PLACES + EXPIRED), "{claims} claims");
}
