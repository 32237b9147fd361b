//! Bad input: one clear sentence, the right exit code, no panic, and nothing half written.

use crate::{Place, Ran, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const LOAD: [&str; 6] = ["--recipe", "imagenet-train", "--batch", "4", "--epochs", "1"];

fn load(place: &Place, source: &Path) -> Ran {
    place.run(&[&["bench", "load", text(source)], &LOAD[..]].concat())
}

#[test]
fn missing_and_empty_folders() {
    let place = Place::new();
    place.run(&["catalog", "build", "nowhere"]).bad(1, &["nowhere", "no such file"]);
    load(&place, Path::new("nowhere")).bad(1, &["nowhere"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&["catalog", "build", "empty"]).bad(1, &["nothing in", "empty"]);
    let photos = place.photos(10);
    fs::create_dir(photos.join("nothing-in-it")).unwrap();
    let ran = place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]);
    ran.bad(2, &["nothing-in-it"]);
    assert!(!place.path("c.catalog").exists(), "no half-written catalog");
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog", "--allow-empty-classes"]).good();
}

#[test]
fn files_that_are_not_what_they_seem() {
    let place = Place::new();
    let photos = place.photos(10);
    let add = |name: &str, bytes: &[u8]| {
        let path = photos.join("rocket").join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let sound = fs::read(photos.join("rocket/00009.jpg")).unwrap();
    let mut bomb = Vec::new();
    drop(png::Encoder::new(&mut bomb, 60_000, 60_000).write_header().unwrap());
    for (name, bytes, words) in [
        ("text.jpg", b"hello world".as_slice(), vec!["text.jpg", "hello"]),
        ("cut.jpg", &sound[..sound.len() / 2], vec!["cut.jpg", "ends"]),
        ("nothing.jpg", b"", vec!["nothing.jpg"]),
        ("bomb.png", &bomb, vec!["bomb.png", "60000 x 60000"]),
    ] {
        let path = add(name, bytes);
        let ran = place.run(&[&["bench", "load", text(&photos), "--rebuild"], &LOAD[..]].concat());
        ran.bad(1, &words);
        assert!(ran.err.contains("hint: "), "{}", ran.err);
        let skip = ["--set", "loader.on_bad=skip", "--json"];
        let rows = place.run(&[&["bench", "load", text(&photos)], &LOAD[..], &skip].concat()).good().json();
        assert_eq!((&rows[0]["skipped"], &rows[0]["samples"]), (&1.into(), &10.into()));
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_that_may_not_be_read() {
    let place = Place::new();
    let photos = place.photos(10);
    let locked = photos.join("rocket/00009.jpg");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let args = [&["bench", "load", text(&photos)], &LOAD[..]].concat();
    if fs::File::open(&locked).is_err() {
        place.run(&args).bad(1, &["00009.jpg", "permission denied"]);
        return;
    }
    // The superuser may read everything, so somebody else has to try.
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    let binary = place.path("gristmill");
    fs::copy(env!("CARGO_BIN_EXE_gristmill"), &binary).unwrap();
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        text(&binary),
        "bench",
        "load",
        "c.catalog",
    ]);
    match command.args(LOAD).current_dir(place.path("")).output() {
        Ok(output) => Ran::of(&output).bad(1, &["00009.jpg", "permission denied"]),
        Err(e) => println!("NOT TESTED as another user: setpriv cannot be run: {e}"),
    }
}

#[test]
fn containers_that_are_cut_or_lie() {
    let place = Place::new();
    let shipped = gristmill_testdata::shippable();
    let tar = fs::read(shipped.join("cc0-photos.tar")).unwrap();
    fs::write(place.path("cut.tar"), &tar[..tar.len() / 2]).unwrap();
    place.run(&["catalog", "build", "cut.tar"]).bad(1, &["cut.tar", "middle"]);

    // 3 images of 2 x 2 announced, 2 there.
    let images = [&[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2][..], &[7; 8]].concat();
    fs::write(place.path("x-images-idx3-ubyte"), images).unwrap();
    fs::write(place.path("x-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2]).unwrap();
    place.run(&["catalog", "build", "x-images-idx3-ubyte"]).bad(1, &["x-images-idx3-ubyte"]);

    fs::write(place.path("data_batch_1.bin"), vec![0; 3_073 * 2 + 5]).unwrap();
    place.run(&["catalog", "build", "data_batch_1.bin"]).bad(1, &["data_batch_1.bin"]);
    let left: Vec<_> =
        fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("catalog")), "{left:?}");
}

#[test]
fn catalogs_of_another_version_or_with_a_flipped_bit() {
    let place = Place::new();
    let photos = place.photos(20);
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    let sound = fs::read(place.path("c.catalog")).unwrap();

    let mut other = sound.clone();
    other[8] = other[8].wrapping_add(41); // the version follows the magic
    fs::write(place.path("c.catalog"), &other).unwrap();
    let ran = place.run(&["catalog", "show", "c.catalog"]);
    ran.bad(2, &["c.catalog", "version"]);
    assert!(ran.err.contains("gristmill catalog build"), "{}", ran.err);

    for at in (0..sound.len()).step_by(sound.len() / 23) {
        let mut flipped = sound.clone();
        flipped[at] ^= 4;
        fs::write(place.path("c.catalog"), &flipped).unwrap();
        let ran = place.run(&["catalog", "check", "c.catalog"]);
        assert!(matches!(ran.code, Some(1 | 2)), "byte {at}: {:?} {}{}", ran.code, ran.out, ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }
    fs::write(place.path("c.catalog"), &sound[..sound.len() - 9]).unwrap();
    place.run(&["catalog", "show", "c.catalog"]).bad(1, &["c.catalog"]);
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let place = Place::new();
    let photos = place.photos(200);
    let small = place.path("small");
    fs::create_dir(&small).unwrap();
    let mount = |args: &[&str]| Command::new("mount").args(args).stderr(Stdio::null()).status();
    let mounted = mount(&["-t", "tmpfs", "-o", "size=8k", "tmpfs", text(&small)]);
    if !mounted.is_ok_and(|status| status.success()) {
        println!("NOT TESTED with a full disk: a small file system cannot be mounted here");
        return;
    }
    let ran = place.run(&["catalog", "build", text(&photos), "-o", "small/c.catalog"]);
    let left = fs::read_dir(&small).unwrap().count();
    Command::new("umount").arg(&small).status().unwrap();
    ran.bad(1, &["c.catalog", "no space"]);
    assert_eq!(left, 0, "nothing is left of it");
}

#[test]
fn a_reader_that_goes_away() {
    let place = Place::new();
    let photos = place.photos(50);
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    let mut command = place.command(&["catalog", "show", "c.catalog", "--samples", "50"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Ran::of(&command.stdout(writer).output().unwrap()).bad(1, &["standard output"]);
}

#[test]
fn wrong_words() {
    let place = Place::new();
    let photos = place.photos(10);
    let with = |args: &[&str]| place.run(&[&["bench", "load", text(&photos)], args].concat());
    with(&["--recipe", "imagenet-trian"]).bad(2, &["imagenet-trian", "imagenet-train"]);
    with(&["--recipe", "missing.toml"]).bad(2, &["missing.toml"]);
    with(&["--batch", "0"]).bad(2, &["loader.batch"]);
    with(&["--batch", "-3"]).bad(2, &["loader.batch"]);
    with(&["--threads", "many"]).bad(2, &["loader.threads", "many"]);
    with(&["--set", "loader.bach=3"]).bad(2, &["loader.bach"]);
    fs::write(place.path("any.toml"), "[[op]]\nkind = \"decode\"\n[[op]]\nkind = \"to-tensor\"\n").unwrap();
    with(&["--recipe", "any.toml"]).bad(2, &["size"]);
    with(&["--from-batch", "99"]).bad(2, &["99"]);
    with(&["--batches-out", "no/such/folder/x"]).bad(1, &["no/such/folder/x"]);
    with(&["--set", "loader.memory_bytes_max=1kB", "--recipe", "imagenet-train"])
        .bad(2, &["memory_bytes_max"]);
    assert_eq!(place.run(&["bench", "laod"]).code, Some(2));
    place.run(&["bench", "load", "ftp://x/y"]).bad(2, &["ftp"]);
    fs::write(place.path("gristmill.toml"), "[loader]\nbatch = maybe\n").unwrap();
    place.run(&["config", "show"]).bad(2, &["gristmill.toml"]);
}
