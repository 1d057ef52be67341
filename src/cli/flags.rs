//! Flags and their environment twins: `--db-timeout 2s` is `TASKSTATS_DB_TIMEOUT=2s`; the flag wins, and its twin is not even
//! looked at. A bad value is an error that names the flag or variable, the value, and what would do.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Arg;

use super::exit::Failure;

/// What a switch has for a value when it is given as a flag.
const SWITCHED_ON: &str = "true";

/// One flag of a command.
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    /// What stands for the value in the help; empty for a switch, which takes none.
    pub value: &'static str,
    /// One line for the help, with the default.
    pub help: &'static str,
}

/// What was said, by flag or by environment.
pub struct Flags {
    said: HashMap<&'static str, Said>,
    /// What stood there without a flag, in its order.
    pub values: Vec<OsString>,
}

struct Said {
    /// `--workers` or `TASKSTATS_WORKERS`.
    origin: String,
    value: OsString,
}

impl Flags {
    /// Reads the rest of a command line that has flags only; prints the help and returns None when it was asked for.
    pub fn read(args: &mut lexopt::Parser, usage: &str, known: &[Flag]) -> Result<Option<Flags>, Failure> {
        let flags = Flags::read_with_values(args, usage, known)?;
        match flags.as_ref().and_then(|flags| flags.values.first()) {
            Some(value) => Err(Failure::usage(format!("unexpected argument {value:?}; see --help"))),
            None => Ok(flags),
        }
    }

    /// The same where other values may stand among the flags.
    pub fn read_with_values(args: &mut lexopt::Parser, usage: &str, known: &[Flag]) -> Result<Option<Flags>, Failure> {
        let mut flags = Flags { said: HashMap::new(), values: Vec::new() };
        for flag in known {
            let origin = format!("TASKSTATS_{}", flag.name.to_uppercase().replace('-', "_"));
            if let Some(value) = env::var_os(&origin) {
                flags.said.insert(flag.name, Said { origin, value });
            }
        }
        while let Some(arg) = args.next().map_err(Failure::usage)? {
            let name = match arg {
                Arg::Long("help") | Arg::Short('h') => {
                    print_help(usage, known);
                    return Ok(None);
                }
                Arg::Long(name) => name.to_owned(),
                Arg::Value(value) => {
                    flags.values.push(value);
                    continue;
                }
                other => return Err(Failure::usage(format!("{}; see --help", other.unexpected()))),
            };
            let Some(flag) = known.iter().find(|flag| flag.name == name) else {
                return Err(Failure::usage(format!("unknown flag --{name}; see --help")));
            };
            let value = if flag.value.is_empty() {
                SWITCHED_ON.into()
            } else {
                args.value().map_err(|_| Failure::usage(format!("--{name} needs a value: {}", flag.value)))?
            };
            flags.said.insert(flag.name, Said { origin: format!("--{name}"), value });
        }
        Ok(Some(flags))
    }

    /// The flag's value as `parse` reads it; None when it was not given.
    ///
    /// # Errors
    /// Exit code 2, with the flag, its value and what `parse` says is wrong.
    pub fn get<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Failure> {
        let Some(said) = self.said.get(name) else { return Ok(None) };
        let text = said.value.to_str();
        let parsed = text.ok_or_else(|| "is not UTF-8".to_owned()).and_then(parse);
        parsed.map(Some).map_err(|why| {
            let shown = without_password(&said.value.to_string_lossy());
            Failure::usage(format!("{} {shown:?}: {why}", said.origin))
        })
    }

    /// The name of a file or directory, which need not be UTF-8; None when it was not given.
    ///
    /// # Errors
    /// Exit code 2 when it is empty.
    pub fn path(&self, name: &str) -> Result<Option<PathBuf>, Failure> {
        match self.said.get(name) {
            Some(said) if said.value.is_empty() => {
                Err(Failure::usage(format!("{} \"\": must not be empty", said.origin)))
            }
            said => Ok(said.map(|said| PathBuf::from(&said.value))),
        }
    }
}

/// Usage and one line per flag.
fn print_help(usage: &str, known: &[Flag]) {
    let line = |flag: &Flag| format!("  {:<26} {}", format!("--{} {}", flag.name, flag.value).trim_end(), flag.help);
    let flags = known.iter().map(line).collect::<Vec<_>>().join("\n");
    let twins = "Each flag has a twin in the environment: --db-timeout is TASKSTATS_DB_TIMEOUT. The flag wins.";
    super::say(&format!("{usage}\n\n{flags}\n\n{twins}"));
}

/// A DSN may hold a password, which must not get into logs.
fn without_password(value: &str) -> String {
    if let Some((before, _)) = value.split_once("password=") {
        return format!("{before}password=***");
    }
    match (value.find("://"), value.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => match value[scheme + 3..at].find(':') {
            Some(colon) => format!("{}:***{}", &value[..scheme + 3 + colon], &value[at..]),
            None => value.to_owned(),
        },
        _ => value.to_owned(),
    }
}

/// A switch: as a flag it is on, its twin in the environment says which.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        SWITCHED_ON | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("must be 1, true, 0 or false".into()),
    }
}

/// A whole number within `range`.
pub fn number(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> {
    move |text| {
        let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits_only && range.contains(number));
        number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
    }
}

/// A duration such as `500ms`, `2s` or `1m`, not longer than a day.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let millis = factor.and_then(|factor| digits.parse::<u64>().ok()?.checked_mul(factor));
    let millis = millis.filter(|millis| (1..=86_400_000).contains(millis));
    millis.map(Duration::from_millis).ok_or_else(|| "must be a duration from 1ms to 24h: 500ms, 2s, 1m".into())
}

/// `address:port`; port 0 means any free one.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port: 127.0.0.1:8080 or [::1]:8080".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_a_bound() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("3m"), Ok(Duration::from_secs(180)));
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "2", "s", "-1s", "+1s", "1.5s", "0s", "25h", "99999999999999999999s", "1 s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_plain_digits_within_their_range() {
        let workers = number(1..=64);
        assert_eq!(workers("64"), Ok(64));
        for bad in ["0", "65", "", "+1", "-1", "1e1", " 1", "99999999999999999999"] {
            assert!(workers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_switch_is_on_or_off() {
        assert_eq!(["true", "1", "false", "0"].map(switch), [Ok(true), Ok(true), Ok(false), Ok(false)]);
        for bad in ["", "yes", "TRUE", "2"] {
            assert!(switch(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_never_repeated() {
        assert_eq!(without_password("postgresql://me:secret@h/db"), "postgresql://me:***@h/db");
        assert_eq!(without_password("postgresql://me@h/db"), "postgresql://me@h/db");
        assert_eq!(without_password("host=h password=secret x"), "host=h password=***");
        assert_eq!(without_password("8"), "8");
    }
}
