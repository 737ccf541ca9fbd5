//! The files that protos of authors import.

use std::{fs, path::Path};

use mixer_adapter_proto::{FILES, resolve};

#[test]
fn all_files_of_the_folder_are_resolved() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let mut paths = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "proto") {
                paths.push(path);
            }
        }
    }
    assert_eq!(paths.len(), FILES.len());
    for path in paths {
        let import = path.strip_prefix(&root).unwrap().to_str().unwrap();
        assert_eq!(resolve(import), Some(&*fs::read_to_string(&path).unwrap()), "{import}");
    }
}

#[test]
fn other_paths_are_not_resolved() {
    assert_eq!(resolve("google/protobuf/any.proto"), None);
    assert_eq!(resolve(""), None);
}
