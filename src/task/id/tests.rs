use super::*;

#[test]
fn numbers_are_read_back() {
    for number in [0, 1, 9, 10, 42, 999_999_999_999_999_999] {
        assert_eq!(TaskId::from_number(number).number(), Some(number));
    }
    assert_eq!(TaskId::from_number(7).to_string(), "task[7]");
}

#[test]
fn only_canonical_ids_have_a_number() {
    let others = [
        "",
        "task",
        "task[",
        "task[]",
        "task]",
        "[0]",
        "task[0",
        "task0]",
        "task[00]",
        "task[01]",
        "task[+1]",
        "task[-1]",
        "task[-0]",
        "task[ 1]",
        "task[1 ]",
        " task[1]",
        "task[1] ",
        "task[1]\n",
        "Task[1]",
        "task[1]]",
        "task[[1]]",
        "task[1.0]",
        "task[1e3]",
        "task[0x1]",
        "task[1_0]",
        "task[٣]",
        "task[１]",
        "task%5B0%5D",
        // 19 digits, and what fits no bigint at all
        "task[1000000000000000000]",
        "task[9223372036854775807]",
        "task[99999999999999999999]",
    ];
    for id in others {
        assert_eq!(TaskId::new(id).number(), None, "{id:?}");
    }
}

#[test]
fn the_largest_legal_number_has_a_successor_in_a_bigint() {
    let largest = TaskId::new(format!("task[{}]", "9".repeat(MAX_DIGITS))).number().expect("18 digits are legal");
    assert!(largest.checked_add(1).is_some());
}

#[test]
fn a_segment_encodes_all_but_unreserved_characters() {
    let cases = [
        ("task[0]", "task%5B0%5D"),
        ("AZaz09-._~", "AZaz09-._~"),
        ("a/b?c#d%e f+g", "a%2Fb%3Fc%23d%25e%20f%2Bg"),
        ("naïve 字 🦀", "na%C3%AFve%20%E5%AD%97%20%F0%9F%A6%80"),
        ("\r\n\"\u{7f}", "%0D%0A%22%7F"),
        ("", ""),
    ];
    for (id, segment) in cases {
        assert_eq!(TaskId::new(id).to_segment(), segment);
        assert_eq!(TaskId::from_segment(segment), Ok(TaskId::new(id)));
    }
}

#[test]
fn every_character_but_nul_survives_a_segment() {
    for character in (1..=0x10_FFFF).filter_map(char::from_u32) {
        let id = TaskId::new(character);
        let segment = id.to_segment();
        assert!(segment.is_ascii());
        assert_eq!(TaskId::from_segment(&segment), Ok(id));
    }
}

#[test]
fn raw_lower_case_and_mixed_spellings_are_one_id() {
    for segment in ["task[0]", "task%5B0%5D", "task%5b0%5d", "task[0%5D", "%74ask[%30]"] {
        assert_eq!(TaskId::from_segment(segment), Ok(TaskId::from_number(0)), "{segment}");
    }
    assert_eq!(TaskId::from_segment("a+b"), Ok(TaskId::new("a+b")));
    // Decoded once: what comes out is not looked at again.
    assert_eq!(TaskId::from_segment("%2541"), Ok(TaskId::new("%41")));
}

#[test]
fn a_bad_segment_says_what_is_wrong() {
    let cases = [
        ("task%zz", BadSegment::Malformed("%zz".into())),
        ("%5", BadSegment::Incomplete("%5".into())),
        ("task%", BadSegment::Incomplete("%".into())),
        ("%5g", BadSegment::Malformed("%5g".into())),
        ("%+5", BadSegment::Malformed("%+5".into())),
        ("%é1", BadSegment::Malformed(r"%\xc3\xa9".into())),
        ("%\r\nx", BadSegment::Malformed(r"%\r\n".into())),
        ("%FF", BadSegment::InvalidUtf8),
        ("%C3", BadSegment::InvalidUtf8),
        ("%ED%A0%80", BadSegment::InvalidUtf8),
        ("%C0%80", BadSegment::InvalidUtf8),
        ("task%00", BadSegment::Nul),
        ("task\0", BadSegment::Nul),
    ];
    for (segment, error) in cases {
        assert_eq!(TaskId::from_segment(segment), Err(error), "{segment:?}");
    }
    let text = TaskId::from_segment("task%zz").expect_err("not hexadecimal").to_string();
    assert_eq!(text, "task id has %zz, which is no percent-encoding: write a plain % as %25");
}
