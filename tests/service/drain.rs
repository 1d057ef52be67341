//! SIGTERM: work in hand is waited for, ports are free, nothing is lost.

use std::net::TcpListener;

use crate::harness::serve::End;
use crate::harness::{Database, Gate, Serve};

#[test]
fn sigterm_waits_for_work_in_hand_and_loses_nothing() {
    let database = Database::with_schema();
    let mut serve = Serve::on(&database, &["--workers", "2"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "SUCCEEDED");
    let ids: Vec<String> = (0..20).map(|n| client.submit(&format!("text {n}"))).collect();
    gate.reached();
    serve.signal("TERM");
    // The ports are free while the work goes on.
    crate::harness::until("the ports are free", || {
        Some((TcpListener::bind(serve.listen).ok()?, TcpListener::bind(serve.admin).ok()?))
    });
    assert_eq!(database.task(&ids[0]), "RUNNING|0|0|0");
    gate.open();
    assert_eq!(serve.wait(), End::Code(0));
    let serve = Serve::on(&database, &["--listen", &serve.listen.to_string(), "--admin", &serve.admin.to_string()]);
    let mut client = serve.client();
    for id in &ids {
        client.wait_for(id, "SUCCEEDED");
    }
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "20");
}

#[test]
fn work_that_outlives_the_drain_timeout_is_told_and_recovered_by_the_next_start() {
    let database = Database::with_schema();
    let mut serve = Serve::on(&database, &["--workers", "1", "--drain-timeout", "300ms"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "SUCCEEDED");
    let (running, queued) = (client.submit("runs on"), client.submit("not begun"));
    gate.reached();
    assert_eq!(serve.terminate(), End::Code(1));
    let said = serve.stderr().join("\n");
    assert!(said.contains("1 tasks were still running at the drain timeout"), "{said}");
    assert_eq!(database.task(&queued), "QUEUED|0|0|0");
    let serve = Serve::on(&database, &[]);
    gate.open();
    assert_eq!((serve.reported("failed"), serve.reported("queued")), ("1".into(), "1".into()));
    assert_eq!(database.task(&running), "FAILED|0|0|0");
    serve.client().wait_for(&queued, "SUCCEEDED");
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let database = Database::with_schema();
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let mut serve = Serve::on(&database, &["--workers", "1"]);
        let gate = Gate::shut(&database, "SUCCEEDED");
        serve.client().submit("held");
        gate.reached();
        serve.signal("TERM");
        crate::harness::until("the drain has begun", || {
            serve.stderr().iter().any(|line| line.contains("draining")).then_some(())
        });
        serve.signal(signal);
        assert_eq!(serve.wait(), End::Code(code));
        gate.open();
    }
}
