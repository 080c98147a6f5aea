//! A folder in which a client is made and its programs are run, and what is read for that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What `tests/clients` has installed.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/test-clients");

/// A copy of a folder of `tests/clients.d`, with the document beside.
pub(super) struct Workshop {
    folder: PathBuf,
}

impl Workshop {
    /// A fresh copy. It is left behind, to be looked at, until it is made again.
    pub(super) fn prepare(name: &str) -> Self {
        assert!(
            Path::new(TOOLS).join("installed").exists(),
            "{TOOLS} lacks the generators: run `tests/clients`, which installs them"
        );
        let folder = Path::new(TOOLS).join("work").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let source = Path::new(ROOT).join("tests/clients.d").join(name);
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
        let document = Path::new(ROOT).join("openapi/openapi.json");
        fs::copy(document, folder.join("openapi.json")).unwrap();
        Self { folder }
    }

    /// Runs these lines of a shell, which must succeed, and gives what was printed.
    pub(super) fn sh(&self, lines: &str) -> String {
        self.finish(Command::new("sh").args(["-euc", lines]))
    }

    /// Runs the folder's `run` with these words and variables, and gives what was printed.
    pub(super) fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> String {
        let mut run = Command::new("./run");
        self.finish(run.args(words).envs(variables.iter().copied()))
    }

    /// Writes a program of that name in the language of the scenario.
    pub(super) fn write_program(&self, name: &str, text: &str) {
        let mut names = fs::read_dir(&self.folder)
            .unwrap()
            .map(|entry| PathBuf::from(entry.unwrap().file_name()));
        let scenario = names.find(|file| file.file_stem().is_some_and(|stem| stem == "scenario"));
        let extension = scenario.unwrap().extension().unwrap().to_owned();
        let path = self.folder.join(name).with_extension(extension);
        fs::write(path, text).unwrap();
    }

    /// Runs to the end in this folder. Panics with all that was printed where it fails.
    fn finish(&self, command: &mut Command) -> String {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{TOOLS}/python/bin:{TOOLS}/node_modules/.bin:{path}");
        let ran = command.current_dir(&self.folder).env("PATH", path).output();
        let ran = ran.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success(),
            "{command:?}: {}\n{stdout}\n{stderr}",
            ran.status
        );
        stdout
    }
}

/// The lines of `docs/clients.md` that generate the client of a language, and its sample: the first block
/// of code in that language, and the last block of `sh` before it.
pub(super) fn of_docs(language: &str) -> (String, String) {
    let text = fs::read_to_string(Path::new(ROOT).join("docs/clients.md")).unwrap();
    let mut generation = None;
    // What stands at odd places is within a pair of fences.
    for block in text.split("\n```").skip(1).step_by(2) {
        let (fence, code) = block.split_once('\n').unwrap();
        if fence == "sh" {
            generation = Some(code.to_owned());
        } else if fence == language {
            return (generation.unwrap(), format!("{code}\n"));
        }
    }
    panic!("docs/clients.md has no block of {language}");
}

/// Panics at the first line that differs from `transcript.txt`.
pub(super) fn assert_is_transcript(said: &str, whose: &str) {
    let path = Path::new(ROOT).join("tests/clients.d/transcript.txt");
    let transcript = fs::read_to_string(path).unwrap();
    for (index, expected) in transcript.lines().enumerate() {
        let found = said.lines().nth(index).unwrap_or("its end");
        assert_eq!(found, expected, "{whose}, line {}", index + 1);
    }
    assert_eq!(said.lines().count(), transcript.lines().count(), "{whose}");
}
