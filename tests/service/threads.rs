//! A process that may start no more threads: who is inside is served, who comes is told, and no lane dies of it.

use std::fs;
use std::process::Command;

use crate::harness::{Database, Gate, PgCluster, Serve, until};

/// The limit counts nothing of root's: as root, the service runs under the account of its cluster. Then so has whoever changes
/// the limit to.
fn as_limited(cluster: &PgCluster) -> Command {
    let mut command = Command::new("setpriv");
    if let Some((uid, gid)) = cluster.account() {
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into()]);
    }
    command
}

/// Sets the limit of threads. With 1 there can be no new one, whatever else runs under the account.
fn allow(cluster: &PgCluster, serve: &Serve, threads: &str) {
    let mut command = as_limited(cluster);
    command.args(["prlimit", "--pid", &serve.pid().to_string(), &format!("--nproc={threads}:")]);
    assert!(command.status().expect("prlimit").success());
}

#[test]
fn running_out_of_threads_costs_new_clients_a_503_and_nothing_else() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    // Where the account may read it.
    let program = cluster.socket_dir().join("taskstats");
    fs::copy(crate::harness::serve::BINARY, &program).expect("a copy");
    let mut command = as_limited(&cluster);
    let serve = Serve::launch(command.args(["--pdeathsig", "KILL"]).arg(&program).arg("serve"), &database.dsn(), &[])
        .unwrap_or_else(|failed| panic!("{failed:?}"));
    let mut inside = serve.client();
    let id = inside.submit("Go one");
    inside.wait_for(&id, "SUCCEEDED");
    let limit = fs::read_to_string(format!("/proc/{}/limits", serve.pid())).expect("/proc");
    let limit = limit.lines().find(|line| line.starts_with("Max processes")).expect("a limit");
    let before = limit.split_whitespace().nth(2).expect("the soft one").to_owned();

    allow(&cluster, &serve, "1");
    for _ in 0..8 {
        let refused = serve.client().get(&format!("/tasks/{id}"));
        assert_eq!((refused.status, refused.text("outcome").as_str()), (503, "none"), "{refused:?}");
    }
    // A claim that is held up, and one behind it that asks for a stand-in in vain.
    let gate = Gate::shut(&database, "RUNNING");
    let held = inside.submit("held");
    gate.reached();
    let behind = inside.submit("behind");
    until("a stand-in is asked for", || {
        serve.stderr().join("\n").contains("cannot start a thread for claim").then_some(())
    });
    gate.open();
    for id in [held, behind] {
        inside.wait_for(&id, "SUCCEEDED");
    }
    let after = inside.submit("after");
    inside.wait_for(&after, "SUCCEEDED");

    allow(&cluster, &serve, &before);
    assert_eq!(serve.client().get(&format!("/tasks/{after}")).status, 200);
}
