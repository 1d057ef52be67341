//! What section 2 of the design says of one task, written down once more and without SQL: the real statements are held
//! against it. It knows nothing of how they are worded.

/// Where the row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    Queued,
    Running,
    Succeeded,
    Failed,
    Canceled,
}

/// How the last claim's time stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    None,
    Holds,
    Over,
}

/// A task and its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub status: Status,
    pub owner: Option<&'static str>,
    pub epoch: i64,
    pub lease: Lease,
    pub cancel_requested: bool,
    /// Owner and epoch that recorded it.
    pub effect: Option<(&'static str, i64)>,
}

/// What a statement must answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It touched no row.
    Nothing,
    /// It did what it is for.
    Done,
    /// A claim was won under this epoch.
    Claimed(i64),
    /// The effect was recorded now, or had been.
    Effect { new: bool },
    /// The task has this state now.
    Became(Status),
}

impl Model {
    pub fn queued() -> Model {
        let (status, lease) = (Status::Queued, Lease::None);
        Model { status, owner: None, epoch: 0, lease, cancel_requested: false, effect: None }
    }

    pub fn terminal(&self) -> bool {
        !matches!(self.status, Status::Queued | Status::Running)
    }

    fn holds(&self, owner: &'static str, epoch: i64) -> bool {
        self.status == Status::Running && (self.owner, self.epoch, self.lease) == (Some(owner), epoch, Lease::Holds)
    }

    /// What nobody finished and whose owner may be dead.
    fn abandoned(&self) -> bool {
        self.status == Status::Running && self.lease == Lease::Over
    }

    pub fn claim(&mut self, owner: &'static str, attempts: i64) -> Answer {
        let to_be_taken_over = self.abandoned() && !self.cancel_requested && self.epoch < attempts;
        if self.status != Status::Queued && !to_be_taken_over {
            return Answer::Nothing;
        }
        (self.status, self.owner, self.lease) = (Status::Running, Some(owner), Lease::Holds);
        self.epoch += 1;
        Answer::Claimed(self.epoch)
    }

    pub fn effect(&mut self, owner: &'static str, epoch: i64) -> Answer {
        if !self.holds(owner, epoch) {
            return Answer::Nothing;
        }
        let new = self.effect.is_none();
        self.effect.get_or_insert((owner, epoch));
        Answer::Effect { new }
    }

    pub fn renew(&mut self, owner: &'static str, epoch: i64) -> Answer {
        if self.holds(owner, epoch) { Answer::Done } else { Answer::Nothing }
    }

    pub fn finish(&mut self, owner: &'static str, epoch: i64, with_effect: bool) -> Answer {
        if !self.holds(owner, epoch) {
            return Answer::Nothing;
        }
        self.status = if self.cancel_requested { Status::Canceled } else { Status::Succeeded };
        if with_effect && self.status == Status::Succeeded {
            self.effect.get_or_insert((owner, epoch));
        }
        Answer::Became(self.status)
    }

    pub fn cancel(&mut self) -> Answer {
        match self.status {
            Status::Queued => self.status = Status::Canceled,
            Status::Running => self.cancel_requested = true,
            _ => return Answer::Nothing,
        }
        Answer::Became(self.status)
    }

    pub fn settle(&mut self, attempts: i64) -> Answer {
        if !self.abandoned() || !self.cancel_requested && self.epoch < attempts {
            return Answer::Nothing;
        }
        self.status = if self.cancel_requested { Status::Canceled } else { Status::Failed };
        Answer::Became(self.status)
    }

    pub fn expire(&mut self) {
        self.lease = Lease::Over;
    }
}
