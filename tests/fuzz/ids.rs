//! Ids in paths: `TaskId::from_segment`, compared with the plainest decoder there is.

use taskstats::task::TaskId;

use crate::dice::{Dice, repeat};

const SEGMENTS: [&str; 8] =
    ["task[0]", "task%5B12%5D", "task%5b12%5d", "legacy-x", "%25", "%E6%97%A5", "task[999999999999999999]", "日本"];
const SPICE: [&[u8]; 10] = [b"%", b"%00", b"%zz", b"%F", b"%ff", b"%C3%A9", b"[", b"]", b"0", b"\xe6\x97\xa5"];

fn generate(dice: &mut Dice) -> String {
    let mut bytes = dice.one_of(&SEGMENTS).as_bytes().to_vec();
    dice.mutate(&mut bytes, &SPICE);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// None: no id.
fn decode(segment: &str) -> Option<String> {
    let mut parts = segment.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok().filter(|id| !id.contains('\0'))
}

#[test]
fn a_segment_is_refused_or_spells_one_id() {
    let (mut accepted, mut refused) = (0, 0);
    repeat(300_000, |dice| {
        let segment = generate(dice);
        match (TaskId::from_segment(&segment), decode(&segment)) {
            (Ok(id), Some(expected)) => {
                accepted += 1;
                assert_eq!(id.as_str(), expected, "{segment:?}");
                assert!(id.to_segment().bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'), "{segment:?}");
                assert_eq!(TaskId::from_segment(&id.to_segment()), Ok(id.clone()), "{segment:?}");
                if let Some(number) = id.number() {
                    assert_eq!(TaskId::from_number(number), id, "{segment:?}");
                }
            }
            (Err(error), None) => {
                refused += 1;
                assert!(error.to_string().starts_with("task id "), "{error}");
            }
            (ours, theirs) => panic!("{segment:?}: {ours:?}, but {theirs:?}"),
        }
    });
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 50_000 && refused > 20_000, "the inputs miss something");
}
