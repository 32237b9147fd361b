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
        ("[loader]\nbatch = \"many\"", "a whole number from 1 to 4294967295"),
        ("[loader]\nbatch = 99999999999", "a whole number from 1 to 4294967295"),
        ("[loader]\nthreads = 1025", "a whole number from 0 to 1024"),
        ("[loader]\nprefetch_batches = 65537", "from 0 to 65536"),
        ("[loader]\nmemory_bytes_max = \"9000TiB\"", "a size from 1 to 1024TiB"),
        ("[store]\nreads_in_flight = 65537", "from 0 to 65536"),
        ("[store]\nthrottle_latency_ms = 3600001", "from 0 to 3600000"),
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

#[test]
fn every_key_says_what_it_takes() {
    for key in KEYS {
        assert!(!key.values().is_empty());
        let texts = ["recipe.name", "catalog.folder", "client.tls_ca", "page.listen"];
        let of_serve =
            ["listen", "unix", "http", "name", "token_file", "tls_cert", "tls_key", "peers", "advertise"];
        let takes_anything = texts.contains(&key.name)
            || key.name.strip_prefix("serve.").is_some_and(|name| of_serve.contains(&name));
        assert_eq!(key.values() == "any text", takes_anything, "{}", key.name);
    }
}

#[test]
fn variables_set_values_and_unknown_ones_are_refused() {
    let with = |pairs: &[(&str, &str)]| {
        let mut config = Config::default();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
        config.environment(pairs.into_iter()).map(|()| config.settings.batch)
    };
    let sound = [
        ("PATH", "/"),
        ("GRISTMILL_LOADER_BATCH", "7"),
        ("GRISTMILL_DATA", "x"),
        ("GRISTMILL_CONFIG", "y"),
        ("gristmill_x", "z"),
    ];
    assert_eq!(with(&sound).unwrap(), 7);
    let slip = with(&[("GRISTMILL_LOADER_BACH", "7")]).unwrap_err();
    assert!(slip.to_string().contains("GRISTMILL_LOADER_BACH"), "{slip}");
    assert_eq!(slip.remedy(), Some("did you mean GRISTMILL_LOADER_BATCH? If not, unset it"));
    assert!(with(&[("GRISTMILL_X", "")]).unwrap_err().remedy().unwrap().contains("unset it"));
    assert!(with(&[("GRISTMILL_LOADER_BATCH", "0")]).is_err());
}

#[test]
fn stalls_that_are_injected_end_soon() {
    let store = |text: &str| from_file(text).unwrap().settings().store();
    let plain = store("");
    assert_eq!((plain.retry.attempt_ms_max, plain.faults.is_none()), (30_000, true));
    for (text, attempt_ms_max) in
        [("[store]\nfault_share = 0.1", 1_000), ("[store]\nfault_share = 0.1\nattempt_ms_max = 5000", 5_000)]
    {
        let faulty = store(text);
        assert_eq!(faulty.retry.attempt_ms_max, attempt_ms_max, "{text}");
        assert_eq!(faulty.faults.unwrap().stall_ms, attempt_ms_max + 1, "{text}");
    }
}

#[test]
fn what_somebody_set_is_pinned_unless_the_rule_says_otherwise() {
    use crate::steer::Pins;
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.toml");
    std::fs::write(&empty, "").unwrap();
    let load = |pairs: &[(&str, &str)]| Config::load(Some(&empty), &arguments(pairs));
    let pins = |pairs: &[(&str, &str)]| load(pairs).unwrap().settings().loader().steer.pins;
    assert_eq!(pins(&[]), Pins::default());
    let typed = [("loader.threads", "1"), ("split.policy", "best"), ("loader.batch", "9")];
    let both = Pins { threads: true, split: true, ..Pins::default() };
    assert_eq!(pins(&typed), both);
    assert_eq!(pins(&[typed[0], ("steer.pin", "none")]), Pins::default());
    assert_eq!(pins(&[("steer.pin", "all")]), Pins::ALL);
    assert_eq!(
        pins(&[typed[0], ("steer.pin", "reads, ahead")]),
        Pins { reads: true, ahead: true, ..Pins::default() }
    );
    for (knob, setting) in Pins::NAMES {
        assert!(KEYS.iter().any(|key| key.name == setting), "{knob} moves {setting}, which is not a setting");
    }
    let refused = |pairs: &[(&str, &str)]| load(pairs).unwrap_err().to_string();
    assert!(refused(&[("steer.pin", "threads,treads")]).contains("some of threads, reads, ahead, split"));
    assert!(refused(&[("steer.mode", "off"), ("steer.pin", "none")]).contains("lets none move"));
}
