//! Rows of other programs, whose ids are not `task[n]`: read, but never changed.

use crate::harness::{Database, Serve};

/// One in every state that ours would not be left in, the expired ones the first to be looked at, and one of ours beside.
const ROWS: &str = "
    INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until, cancel_requested)
    SELECT 'foreign ' || row_number() OVER (), 'w', status, 'other', epoch, until, cancel
      FROM unnest(ARRAY['QUEUED', 'RUNNING']) AS status,
           unnest(ARRAY[1, 99]) AS epoch,
           unnest(ARRAY[NULL, timestamptz '2000-01-01']) AS until,
           unnest(ARRAY[false, true]) AS cancel;
    INSERT INTO go_tasks (id, text, status, words, bytes, runes) VALUES
        ('foreign succeeded', 'w', 'SUCCEEDED', 1, 1, 1),
        ('task[007]', 'w', 'QUEUED', 0, 0, 0),
        ('foreign state', 'w', 'PAUSED', 0, 0, 0);
    INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until)
    VALUES ('task[3]', 'Go one', 'RUNNING', 'dead', 1, clock_timestamp());";

const FOREIGN: &str = "SELECT go_tasks FROM go_tasks WHERE go_task_number(id) IS NULL ORDER BY id";

fn are_left_alone(flags: &[&str], ours: &str) {
    let database = Database::with_schema();
    database.run(ROWS);
    let before = database.rows(FOREIGN);
    let serve = Serve::on(&database, flags);
    let mut client = serve.client();
    let id = client.submit("a new one");
    client.wait_for(&id, "SUCCEEDED");
    if ours != "RUNNING" {
        client.wait_for("task[3]", ours);
    }
    let ids = database.rows("SELECT string_agg(id, ',') FROM go_tasks WHERE go_task_number(id) IS NULL");
    for id in ids.split(',') {
        let segment = id.replace(' ', "%20");
        assert_eq!(client.get(&format!("/tasks/{segment}")).text("id"), id);
        let refused = client.cancel(&segment);
        assert_eq!((refused.status, refused.text("cancel").as_str()), (409, "not_ours"), "{id}: {refused:?}");
        assert!(refused.text("detail").contains("another program"), "{refused:?}");
    }
    assert_eq!(database.rows(FOREIGN), before);
    assert_eq!(database.rows("SELECT status FROM go_tasks WHERE id = 'task[3]'"), ours);
}

#[test]
fn one_instance_leaves_rows_of_other_programs_alone() {
    // A lease is another instance's matter.
    are_left_alone(&[], "RUNNING");
}

#[test]
fn an_instance_with_leases_leaves_rows_of_other_programs_alone() {
    are_left_alone(&["--lease", "1s"], "SUCCEEDED");
}
