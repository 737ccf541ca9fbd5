//! Completions, each by the shell that they are for.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::support::{binary, debian, run};

/// Words and the completion of the last one.
const COMPLETED: [(&str, &str); 12] = [
    ("val", "validate"),
    ("validate --warn", "--warnings-as-errors"),
    ("validate --output sa", "sarif"),
    ("envoy-config --names", "--namespace"),
    ("adapters mem", "memquota"),
    ("call listen", "listentry"),
    ("check request.pa", "request.path="),
    ("watch --collection ru", "rules"),
    ("reference kinds attributem", "attributemanifest"),
    ("man valid", "validate"),
    ("validate hand", "handlers.yaml"),
    ("call quota --config @hand", "@handlers.yaml"),
];

/// A directory with the completions of the binary and a file.
fn folder(shell: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&["completions", shell]);
    assert_eq!(ran.code, 0);
    std::fs::write(folder.path().join("script"), ran.stdout).unwrap();
    std::fs::write(folder.path().join("handlers.yaml"), "").unwrap();
    folder
}

/// Runs a shell in a folder, with the binary in the path, and returns its output.
fn output(command: &mut Command, folder: &Path) -> String {
    let binary = Path::new(binary().get_program()).parent().unwrap().to_owned();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let output = command
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn bash_completes_every_word() {
    let Some(shell) = debian::program("bash", "bash") else { return };
    let folder = folder("bash");
    for (words, expected) in COMPLETED {
        let script = format!(
            "source ./script; COMP_WORDS=(mixer-adapter {words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); COMP_TYPE=9; \
             function=$(complete -p mixer-adapter | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
             $function mixer-adapter \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let completed = output(Command::new(&shell).args(["--norc", "-c", &script]), folder.path());
        assert!(completed.lines().any(|word| word == expected), "{words}: {completed:?}");
    }
}

#[test]
fn fish_completes_every_word() {
    let Some(shell) = debian::program("fish", "fish") else { return };
    let folder = folder("fish");
    for (words, expected) in COMPLETED {
        let script = format!("source ./script; complete -C 'mixer-adapter {words}'");
        let completed = output(Command::new(&shell).args(["--no-config", "-c", &script]), folder.path());
        let is_it = |line: &str| line.split('\t').next() == Some(expected);
        assert!(completed.lines().any(is_it), "{words}: {completed:?}");
    }
}

/// zsh completes only in an editor: it runs in a terminal of its own, where the completed word appears.
#[test]
fn zsh_completes_every_word() {
    let Some(shell) = debian::program("zsh", "zsh") else { return };
    let folder = folder("zsh");
    let zsh = shell.display();
    for (words, expected) in COMPLETED {
        let start = words.split_whitespace().next_back().unwrap();
        let rest = expected.strip_prefix(start).unwrap();
        let script = format!(
            "zmodload zsh/zpty zsh/zselect
             await() {{ local seen part; until [[ $seen == *${{~1}}* ]]; do if zpty -r -t shell part; then seen+=$part; else zselect -t 5; fi; done }}
             zpty shell 'TERM=dumb {zsh} -f -i'
             zpty -w shell 'autoload -Uz compinit; compinit -u -D; source ./script; PROMPT=REA\"\"DY'
             await READY
             zpty -n -w shell $'mixer-adapter {words}\\t'
             await '{words}*{rest}' && print -r -- completed
             zpty -d shell"
        );
        let mut command = Command::new("timeout");
        command.args(["60", &zsh.to_string(), "-f", "-c", &script]);
        let completed = output(&mut command, folder.path());
        assert!(completed.ends_with("completed\n"), "{words}: {completed:?}");
    }
}

#[test]
fn candidates_have_descriptions_and_continue_lists_of_attributes() {
    let complete = |words: &[&str]| {
        let ran = binary()
            .env("MIXER_ADAPTER_COMPLETE", "fish")
            .args(["--", "mixer-adapter"])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    assert_eq!(
        complete(&["check", "source.ip=1.2.3.4,request.url"]),
        "source.ip=1.2.3.4,request.url_path=\tPath of the request without its query.\n"
    );
    assert_eq!(complete(&["call", "--adapter", "den"]), "denier\tDenies every check with a fixed status.\n");
}
