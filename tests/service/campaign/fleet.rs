//! Four instances, and what is done to them.

use std::time::{Duration, Instant};

use crate::harness::{Database, Serve};
use crate::leases::FileGate;

/// Chance that can be repeated: xorshift64*.
pub struct Dice(u64);

impl Dice {
    pub fn of(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

/// An owner's end, by the database's clock in microseconds.
#[derive(Debug, Clone)]
pub struct Death {
    /// `host:pid:` as its owner's name begins.
    pub pid: u32,
    pub at: i64,
}

/// How often what was done.
#[derive(Debug, Default)]
pub struct Deeds {
    pub deaths: Vec<Death>,
    pub stops: usize,
    pub terminations: usize,
}

struct Member {
    serve: Serve,
    /// Holds its analysers for as long as it takes to have some of them at work.
    gate: FileGate,
    /// It gets no processor until then.
    stopped: Option<Instant>,
}

/// Longest wait for an instance to have work in hand: it may have lost its connections, or get none.
const BUSY_PATIENCE: Duration = Duration::from_millis(500);

/// The instances.
pub struct Fleet<'a> {
    database: &'a Database,
    flags: Vec<String>,
    lease: Duration,
    members: Vec<Member>,
    pub deeds: Deeds,
}

impl<'a> Fleet<'a> {
    pub fn start(database: &'a Database, size: usize, lease: Duration) -> Fleet<'a> {
        let lease_flag = format!("{}ms", lease.as_millis());
        // A short queue: what is taken over should not wait long behind it. Deaths must fail no task.
        let flags = ["--lease", &lease_flag, "--workers", "4", "--queue", "12", "--max-attempts", "1000"];
        let flags = flags.map(str::to_owned).to_vec();
        let mut fleet = Fleet { database, flags, lease, members: Vec::new(), deeds: Deeds::default() };
        for number in 0..size {
            let gate = FileGate::named(database, &format!("member{number}"));
            gate.open();
            let serve = fleet.serve(&gate);
            fleet.members.push(Member { serve, gate, stopped: None });
        }
        fleet
    }

    fn serve(&self, gate: &FileGate) -> Serve {
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        Serve::gated(&self.database.dsn(), gate.path(), &flags)
    }

    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.members.iter().map(|member| member.serve.listen).collect()
    }

    /// Does one thing to one of them, mostly while it has work in hand.
    pub fn disturb(&mut self, dice: &mut Dice) {
        self.wake(Some(Instant::now()));
        let victim = dice.below(self.members.len() as u64) as usize;
        if dice.below(4) > 0 && self.members[victim].stopped.is_none() {
            self.members[victim].gate.shut_again();
            self.wait_until_busy(self.members[victim].serve.pid());
        }
        match dice.below(4) {
            0 | 1 => self.replace(victim),
            2 if self.members.iter().all(|member| member.stopped.is_none()) => {
                // From a blink to far beyond the lease.
                let time = self.lease * (dice.below(20) as u32) / 10;
                self.members[victim].serve.signal("STOP");
                self.members[victim].stopped = Some(Instant::now() + time);
                self.deeds.stops += 1;
            }
            _ => {
                self.database.rows(&format!(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                      WHERE datname = current_database() AND application_name = 'taskstats' AND pid % 3 = {}",
                    dice.below(3)
                ));
                self.deeds.terminations += 1;
            }
        }
        self.members[victim].gate.open();
    }

    fn wait_until_busy(&self, pid: u32) {
        let (begun, mut client) = (Instant::now(), self.database.connect());
        let busy = "SELECT FROM go_tasks WHERE status = 'RUNNING' AND lease_owner LIKE '%:' || $1::text || ':%'";
        while begun.elapsed() < BUSY_PATIENCE {
            if !client.query(busy, &[&pid.to_string()]).expect("an answer").is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGKILL, and another one in its place.
    fn replace(&mut self, victim: usize) {
        let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let at = self.database.rows(clock).parse().expect("microseconds");
        let pid = self.members[victim].serve.pid();
        self.members[victim].serve.kill();
        self.deeds.deaths.push(Death { pid, at });
        self.members[victim].gate.open();
        self.members[victim].serve = self.serve(&self.members[victim].gate);
        self.members[victim].stopped = None;
    }

    /// Lets those go on that were stopped until then, or all.
    pub fn wake(&mut self, now: Option<Instant>) {
        for member in &mut self.members {
            if member.stopped.is_some_and(|until| now.is_none_or(|now| until <= now)) {
                member.serve.signal("CONT");
                member.stopped = None;
            }
        }
    }
}
