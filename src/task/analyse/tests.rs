use super::*;

fn analyse(text: &str, max_words: Option<u64>) -> Analysis {
    CountAnalyser { max_words }.analyse(text, &Stop::default())
}

#[test]
fn counts_a_text() {
    assert_eq!(analyse("Go one", None), Analysis::Counted(Counts { words: 2, bytes: 6, runes: 6 }));
    assert_eq!(analyse("", None), Analysis::Counted(Counts::default()));
}

#[test]
fn pieces_do_not_show_in_the_counts() {
    // Three-byte words: neither a word nor a character ends where a piece does.
    let text = "字é ".repeat(PIECE / 2);
    let words = (PIECE / 2) as u64;
    assert_eq!(analyse(&text, None), Analysis::Counted(Counts { words, bytes: words * 6, runes: words * 3 }));
}

#[test]
fn a_limit_allows_what_it_names_and_fails_the_next_word() {
    assert_eq!(analyse("a b c", Some(3)), Analysis::Counted(Counts { words: 3, bytes: 5, runes: 5 }));
    let reason = "text has 4 words, more than the 3 that --max-words allows";
    assert_eq!(analyse("a b c d", Some(3)), Analysis::Failed(reason.into()));
    assert_eq!(analyse(" \n", Some(0)), Analysis::Counted(Counts { words: 0, bytes: 2, runes: 2 }));
    assert!(matches!(analyse("a", Some(0)), Analysis::Failed(_)));
}

#[test]
fn a_limit_holds_beyond_the_first_piece() {
    let text = "word ".repeat(PIECE);
    let reason = format!("text has {PIECE} words, more than the 20000 that --max-words allows");
    assert_eq!(analyse(&text, Some(20_000)), Analysis::Failed(reason));
}

#[test]
fn a_stop_ends_the_work_before_or_while_it_is_done() {
    let text = "word ".repeat(20 * 1024 * 1024);
    let stop = Stop::default();
    let analysis = std::thread::scope(|scope| {
        let running = scope.spawn(|| CountAnalyser::default().analyse(&text, &stop));
        stop.clone().request();
        running.join().expect("the analyser does not panic")
    });
    assert_eq!(analysis, Analysis::Stopped);
}
