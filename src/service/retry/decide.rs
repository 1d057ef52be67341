//! What to do next about a claim that was refused, not done or not answered. Pure: a table of decisions.
//!
//! Never takes a task for ours without knowing it: where an answer is lost, the row is read back before anything else is done.

use crate::store::{Claimed, StoreError};

/// The next statement about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Claim the task again.
    Claim,
    /// Read the row back: an earlier claim, without an answer, may have made it ours.
    ReadBack,
    /// Fail the task, whose claim was refused.
    Fail,
}

/// What becomes of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// This step, at once.
    Now(Step),
    /// This step, after a pause.
    Later(Step),
    /// It is ours: analyse it.
    Run(Claimed),
    /// It is not ours, or stays QUEUED for the next start.
    Drop,
}

/// What a row that was read back is.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Ours(Claimed),
    Queued,
    /// Terminal, another owner's or deleted.
    Gone,
}

/// After a claim. `answer_lost`: an earlier one had no answer, and may have been done after the row was read back.
pub fn after_claim(
    answer: Result<Option<Claimed>, StoreError>,
    answer_lost: bool,
    shutdown_has_begun: bool,
) -> Decision {
    match answer {
        Ok(Some(claimed)) => Decision::Run(claimed),
        Ok(None) if answer_lost => Decision::Now(Step::ReadBack),
        Ok(None) => Decision::Drop,
        Err(StoreError::Refused(_)) => Decision::Now(Step::Fail),
        Err(StoreError::NotDone(_)) if shutdown_has_begun => Decision::Drop,
        Err(StoreError::NotDone(_)) => Decision::Later(Step::Claim),
        Err(StoreError::Unknown(_)) => Decision::Now(Step::ReadBack),
    }
}

/// After the row was read back; an error: it could not be.
pub fn after_read_back(found: Result<Found, StoreError>) -> Decision {
    match found {
        Ok(Found::Ours(claimed)) => Decision::Run(claimed),
        Ok(Found::Queued) => Decision::Later(Step::Claim),
        Ok(Found::Gone) => Decision::Drop,
        Err(_) => Decision::Later(Step::ReadBack),
    }
}

/// After the write that fails a task; false: it was not QUEUED any more.
pub fn after_fail(failed: Result<bool, StoreError>, answer_lost: bool) -> Decision {
    match failed {
        Ok(false) if answer_lost => Decision::Now(Step::ReadBack),
        Ok(_) => Decision::Drop,
        Err(_) => Decision::Later(Step::Fail),
    }
}

#[cfg(test)]
mod tests {
    use super::Decision::{Drop, Later, Now, Run};
    use super::*;

    fn claimed() -> Claimed {
        Claimed { text: "Go one".into(), epoch: 1 }
    }

    fn errors() -> [StoreError; 3] {
        [StoreError::Refused, StoreError::NotDone, StoreError::Unknown].map(|error| error("why".into()))
    }

    #[test]
    fn a_claim_is_ours_only_by_an_answer_or_by_the_row() {
        assert_eq!(after_claim(Ok(Some(claimed())), true, true), Run(claimed()));
        assert_eq!(after_read_back(Ok(Found::Ours(claimed()))), Run(claimed()));
        assert_eq!(after_claim(Ok(None), false, false), Drop);
        assert_eq!(after_claim(Ok(None), true, false), Now(Step::ReadBack), "the lost one may have won it");
        assert_eq!(after_read_back(Ok(Found::Gone)), Drop);
    }

    #[test]
    fn each_error_of_a_claim_has_its_own_answer() {
        let decide = |draining| errors().map(|error| after_claim(Err(error), false, draining));
        assert_eq!(decide(false), [Now(Step::Fail), Later(Step::Claim), Now(Step::ReadBack)]);
        assert_eq!(decide(true), [Now(Step::Fail), Drop, Now(Step::ReadBack)], "what was not begun stays QUEUED");
    }

    #[test]
    fn a_row_is_read_back_until_it_answers() {
        errors().into_iter().for_each(|error| assert_eq!(after_read_back(Err(error)), Later(Step::ReadBack)));
        assert_eq!(after_read_back(Ok(Found::Queued)), Later(Step::Claim));
    }

    #[test]
    fn a_refused_claim_is_failed_until_that_commits() {
        errors().into_iter().for_each(|error| assert_eq!(after_fail(Err(error), true), Later(Step::Fail)));
        assert_eq!(after_fail(Ok(true), true), Drop);
        assert_eq!(after_fail(Ok(false), false), Drop, "cancelled meanwhile");
        assert_eq!(after_fail(Ok(false), true), Now(Step::ReadBack), "the lost claim may have won it");
    }
}
