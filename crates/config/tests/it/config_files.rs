//! Configuration in files: what is read, and what a change of them sends.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use mixer_adapter_config::{Acceptance, ConfigSet, Offer, ValidationError, read, source::FileSource};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

fn rule(name: &str) -> String {
    format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {{name: {name}}}\nspec: {{match: \"true\"}}\n"
    )
}

fn names(directory: &Path) -> Vec<String> {
    let read = read(directory, "ns", &[]);
    assert_eq!(read.faults, []);
    read.resources.iter().map(|resource| resource.name.name().to_owned()).collect()
}

#[test]
fn all_yaml_and_json_below_a_directory_is_read_by_name_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir_all(path.join("sub")).unwrap();
    fs::write(path.join("c.yaml"), [rule("c1"), rule("c2")].join("---\n")).unwrap();
    fs::write(path.join("a.yml"), rule("a")).unwrap();
    fs::write(path.join("b.json"), r#"{"kind": "rule", "metadata": {"name": "b"}, "spec": {}}"#).unwrap();
    fs::write(path.join("sub/d.yaml"), rule("d")).unwrap();
    fs::write(path.join("README.md"), "# not configuration").unwrap();
    fs::write(path.join(".hidden.yaml"), rule("hidden")).unwrap();
    assert_eq!(names(path), ["a", "b", "c1", "c2", "d"]);
    assert_eq!(names(&path.join("a.yml")), ["a"], "one file");
}

#[test]
fn a_mounted_config_map_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir(path.join("..2026_11_21")).unwrap();
    fs::write(path.join("..2026_11_21/rules.yaml"), rule("mounted")).unwrap();
    symlink("..2026_11_21", path.join("..data")).unwrap();
    symlink("..data/rules.yaml", path.join("rules.yaml")).unwrap();
    assert_eq!(names(path), ["mounted"]);
}

#[test]
fn what_cannot_be_read_names_the_file_and_costs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("a.yaml"), rule("good")).unwrap();
    fs::write(path.join("b.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    symlink("nowhere", path.join("c.yaml")).unwrap();
    symlink(".", path.join("loop")).unwrap();
    let read_all = read(path, "ns", &[]);
    assert_eq!(read_all.resources.len(), 1);
    let root = path.to_str().unwrap();
    let mut faults: Vec<_> =
        read_all.faults.iter().map(|fault| fault.to_string().replace(root, "D")).collect();
    faults.sort();
    let starts = ["D/b.yaml: is not UTF-8: ", "D/c.yaml: cannot be read: ", "D/loop: cannot be read: "];
    assert_eq!(faults.len(), starts.len(), "{faults:?}");
    assert!(faults.iter().zip(starts).all(|(fault, start)| fault.starts_with(start)), "{faults:?}");
    let absent = read(&path.join("absent"), "ns", &[]);
    assert!(matches!(&absent.faults[..], [fault] if fault.to_string().contains("absent: cannot be read")));
}

/// A running source, and the set its updates make.
struct Running {
    offers: mpsc::Receiver<Offer>,
    set: ConfigSet,
}

impl Running {
    fn start(directory: &Path) -> Self {
        Self::of(FileSource::new(directory, "ns"))
    }

    fn of(source: FileSource) -> Self {
        let (target, offers) = mpsc::channel(1);
        tokio::spawn(Acceptance::new(target).run(vec![source.into()]));
        Self { offers, set: ConfigSet::default() }
    }

    /// Takes the next update: the names after it, and what is wrong with it.
    async fn next(&mut self) -> (Vec<String>, Vec<ValidationError>) {
        let offer = timeout(Duration::from_secs(30), self.offers.recv()).await.unwrap().unwrap();
        let (set, mut faults) = self.set.apply(offer.content().changes.clone());
        faults.extend(offer.content().faults.clone());
        if faults.is_empty() {
            self.set = set;
            offer.accept();
        } else {
            offer.refuse(faults.clone());
        }
        (self.set.iter().map(|entry| entry.name().name().to_owned()).collect(), faults)
    }

    async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(500), self.offers.recv()).await.is_err()
    }
}

#[tokio::test]
async fn a_change_of_the_files_sends_all_of_them_and_what_is_gone_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("a.yaml"), rule("a")).unwrap();
    let mut source = Running::start(path);
    assert_eq!(source.next().await, (vec!["a".to_owned()], vec![]));
    fs::write(path.join("b.yaml"), rule("b")).unwrap();
    assert_eq!(source.next().await.0, ["a", "b"]);
    fs::remove_file(path.join("a.yaml")).unwrap();
    assert_eq!(source.next().await.0, ["b"]);
    assert!(source.is_silent().await, "nothing changed");
    fs::remove_file(path.join("b.yaml")).unwrap();
    assert_eq!(source.next().await.0, [""; 0]);
}

#[tokio::test]
async fn many_writes_at_once_are_one_update() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = Running::start(directory.path());
    assert_eq!(source.next().await.0, [""; 0]);
    for name in ["a", "b", "c", "d"] {
        fs::write(directory.path().join(format!("{name}.yaml")), rule(name)).unwrap();
    }
    assert_eq!(source.next().await.0, ["a", "b", "c", "d"]);
    assert!(source.is_silent().await);
}

#[tokio::test]
async fn a_config_map_that_is_swapped_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for version in ["1", "2"] {
        fs::create_dir(path.join(format!("..{version}"))).unwrap();
        fs::write(path.join(format!("..{version}/rules.yaml")), rule(&format!("r{version}"))).unwrap();
    }
    symlink("..1", path.join("..data")).unwrap();
    symlink("..data/rules.yaml", path.join("rules.yaml")).unwrap();
    let mut source = Running::start(path);
    assert_eq!(source.next().await.0, ["r1"]);
    symlink("..2", path.join("..data_tmp")).unwrap();
    fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
    assert_eq!(source.next().await.0, ["r2"]);
}

#[tokio::test]
async fn a_file_that_is_half_written_is_not_sent_before_it_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    fs::write(&file, rule("a")).unwrap();
    let mut source = Running::start(directory.path());
    assert_eq!(source.next().await.0, ["a"]);
    fs::write(&file, "kind: rule\nmetadata: {name: ").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    fs::write(&file, rule("whole")).unwrap();
    assert_eq!(source.next().await, (vec!["whole".to_owned()], vec![]));
}

#[tokio::test]
async fn a_file_that_stays_broken_is_reported_and_the_last_good_state_stays() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    fs::write(&file, rule("a")).unwrap();
    let mut source = Running::start(directory.path());
    source.next().await;
    fs::write(&file, "kind: rule\nmetadata: {name: ").unwrap();
    let (names, faults) = source.next().await;
    assert_eq!((names, faults.len()), (vec!["a".to_owned()], 1));
    fs::write(&file, rule("repaired")).unwrap();
    assert_eq!(source.next().await.0, ["repaired"]);
}

#[tokio::test]
async fn a_directory_that_appears_later_is_found() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("later");
    let mut source = Running::start(&directory);
    let (_, faults) = source.next().await;
    assert_eq!(faults.len(), 1);
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a.yaml"), rule("a")).unwrap();
    assert_eq!(source.next().await.0, ["a"]);
}

/// The system reports no writes to the target of a link that leads out of the directory.
#[tokio::test]
async fn a_reload_reads_all_files_whether_a_change_was_noticed_or_not() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = elsewhere.path().join("rules.yaml");
    fs::write(&target, rule("a")).unwrap();
    symlink(&target, directory.path().join("rules.yaml")).unwrap();
    let (reload, requests) = watch::channel(());
    let mut source = Running::of(FileSource::new(directory.path(), "ns").with_reload(requests.into()));
    assert_eq!(source.next().await.0, ["a"]);
    assert!(source.is_silent().await);
    reload.send(()).unwrap();
    assert_eq!(source.next().await.0, ["a"], "offered again, although nothing changed");
    fs::write(&target, rule("b")).unwrap();
    reload.send(()).unwrap();
    assert_eq!(source.next().await.0, ["b"]);
    assert!(source.is_silent().await, "one request, one reload");
}
