//! The table, its layers and its errors.

use super::*;

fn arguments(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn from_file(text: &str) -> Result<Config> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gristmill.toml");
    std::fs::write(&path, text).unwrap();
    Config::load(Some(&path), &[])
}

#[test]
fn every_default_can_be_read_back() {
    for key in KEYS {
        let mut settings = Settings::default();
        (key.set)(&mut settings, &(key.get)(&Settings::default())).unwrap();
        assert_eq!(settings, Settings::default(), "{}", key.name);
    }
}

#[test]
fn arguments_win_over_the_file_and_origins_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    std::fs::write(&path, "[loader]\nbatch = 7\nmemory_bytes_max = \"2GiB\"\n").unwrap();
    let config = Config::load(Some(&path), &arguments(&[("loader.batch", "9")])).unwrap();
    let row =
        |name| config.rows().find(|(key, ..)| key.name == name).map(|(_, v, o)| (v, o.clone())).unwrap();
    assert_eq!(row("loader.batch"), ("9".into(), Origin::Argument));
    assert_eq!(row("loader.memory_bytes_max"), ("2GiB".into(), Origin::File(path)));
    assert_eq!(row("loader.seed"), ("0".into(), Origin::Default));
    assert_eq!(config.settings().loader().shape.batch, 9);
}

#[test]
fn wrong_values_are_named() {
    for (text, expect) in [
        ("[loader]\nbatch = 0", "loader.batch = \"0\""),
        ("[loader]\nbatch = \"many\"", "a whole number of at least 1"),
        ("[loader]\nbach = 4", "\"loader.bach\""),
        ("[laoder]\nbatch = 4", "\"laoder.batch\""),
        ("batch = 4", "outside of a section"),
        ("[loader\nbatch = 4", "not valid TOML"),
        ("[loader]\nrank = 3", "loader.rank = 3 but loader.world = 1"),
        ("[store]\nattempt_ms_max = 99999999", "store.deadline_ms"),
        ("[store]\nfault_share = 1.5", "a number from 0 to 1"),
    ] {
        let message = from_file(text).unwrap_err().to_string();
        assert!(message.contains(expect), "{text:?} gave {message:?}");
    }
    let hint = from_file("[loader]\nbach = 4").unwrap_err();
    assert_eq!(hint.remedy(), Some("did you mean \"loader.batch\"?"));
}
