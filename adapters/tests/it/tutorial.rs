//! Every step of the tutorials and of the page about troubleshooting.

use crate::support::{
    envoy::{folder, is_there},
    page::{Mark, follow, is_line, is_shown, steps},
};

#[test]
fn every_step_of_the_tutorial_does_what_it_says() {
    if is_there() {
        follow("docs/tutorial.md", &[("MIXER_ADAPTER_TRY_ENVOY_FOLDER", folder())]);
    }
}

#[test]
fn every_symptom_is_printed_as_the_page_about_troubleshooting_shows_it() {
    follow("docs/troubleshooting.md", &[]);
}

#[test]
fn every_step_of_the_tutorial_about_git_does_what_it_says() {
    if is_there() {
        follow("docs/tutorial-gitops.md", &[("MIXER_ADAPTER_TRY_ENVOY_FOLDER", folder())]);
    }
}

#[test]
fn every_step_of_the_tutorial_about_an_old_mesh_does_what_it_says() {
    follow("docs/tutorial-mixer.md", &[]);
}

#[test]
fn the_configurations_of_the_page_about_migration_pass_their_tests() {
    follow("docs/migration.md", &[]);
}

#[test]
fn a_line_with_dots_stands_for_many() {
    assert!(is_shown(&["a", "b", "c"], &["a", "...", "c"]) && is_shown(&["a"], &["a", "..."]));
    assert!(is_shown(&["time: 5 s"], &["time: ... s"]) && !is_shown(&["a", "b"], &["a"]));
    assert!(!is_shown(&["a"], &["b", "..."]) && !is_line("ab", "ab...b"));
    assert!(is_line("a1b2c", "a...b...c") && !is_line("a1b2", "a...c..."));
}

#[test]
fn commands_are_in_blocks_and_in_comments() {
    let page = "# Page\n\n```sh\none\n```\n```text\n1\n```\n\n<!--sh\ntwo\n-->\n\n```sh\nthree\n```\n\n```text\nnot its output\n```\n";
    let steps: Vec<_> = steps(page).into_iter().map(|step| (step.commands, step.shown)).collect();
    assert_eq!(steps, [("one", Some("1")), ("two", None), ("three", None)]);
}

#[test]
fn a_comment_before_a_block_says_who_runs_it_or_why_nobody_does() {
    let page = "\n<!-- run by tests/a.rs -->\n```sh\none\n```\n\n<!-- not run: no cluster -->\n```sh\ntwo\n```\n\n<!-- other -->\n```sh\nthree\n```\n";
    let steps = steps(page);
    assert!(matches!(steps[0].mark, Some(Mark::RunBy("tests/a.rs"))));
    assert!(matches!(steps[1].mark, Some(Mark::NotRun("no cluster"))));
    assert!(steps[2].mark.is_none());
}
