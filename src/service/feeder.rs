//! The feeder: finds QUEUED rows that nobody holds — a recovered backlog, rows whose INSERT was committed but whose answer
//! was lost — and hands them to the workers as permits free up. The database holds the whole queue; ours is only its head.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::worker::Job;
use crate::limits::{FEED_INTERVAL, FEED_ROWS};
use crate::log::Bounded;
use crate::task::TaskId;

/// Feeds the workers until the drain begins.
pub(super) fn run(shared: &Arc<Shared>) {
    let trouble = Bounded::new();
    // Below every number: the first look starts at the oldest task.
    let mut after = -1;
    while !shared.drain.begun() {
        match shared.store.queued_after(after, FEED_ROWS) {
            Ok(found) => {
                let more = found.len() as i64 == FEED_ROWS;
                // Where the look was full, the next one goes on behind it: what was seen is not read again and again.
                after = if more { found.last().map_or(-1, |(_, number)| *number) } else { -1 };
                hand_on(shared, found.into_iter().map(|(id, _)| id).collect());
                if more {
                    continue;
                }
            }
            Err(error) => trouble.line(format_args!("looking for queued tasks: {error}")),
        }
        shared.drain.pause(FEED_INTERVAL);
    }
}

/// Hands tasks on, oldest first, each when there is a permit for it.
fn hand_on(shared: &Arc<Shared>, mut queued: VecDeque<TaskId>) {
    // What a submitter has brought to our queue already is no backlog.
    queued.retain(|id| !shared.held.has(id));
    while let Some(id) = queued.front() {
        shared.backlog.store(queued.len(), Ordering::Relaxed);
        if shared.drain.begun() {
            return;
        }
        let Some(hold) = shared.held.take(id) else {
            queued.pop_front();
            continue;
        };
        if let Some(permit) = shared.admission.wait(FEED_INTERVAL) {
            queued.pop_front();
            shared.queue.push(Job { permit, hold });
        }
    }
    shared.backlog.store(0, Ordering::Relaxed);
}
