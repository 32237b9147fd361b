//! Near-duplicates as a user meets them: what is printed, kept and drawn.

use crate::{Place, text};
use std::fs;

/// A folder of pictures with near-duplicates of two of them.
fn planted(place: &Place) -> std::path::PathBuf {
    let photos = place.photos(30);
    for class in ["rocket/00009", "airplane-from-above/00001"] {
        let Ok(bytes) = fs::read(photos.join(format!("{class}.jpg"))) else { continue };
        for (what, bytes) in gristmill_testdata::near_duplicates(&bytes).unwrap() {
            fs::write(photos.join(format!("{class}~{what}.jpg")), bytes).unwrap();
        }
    }
    photos
}

#[test]
fn they_are_found_kept_and_drawn() {
    let place = Place::new();
    let photos = planted(&place);
    let args = ["families", text(&photos), "--radius", "4", "--json"];
    let first = place.run(&[&args[..], &["--page", "p.html"]].concat()).good().json().remove(0);
    assert!(first["families"].as_u64().unwrap() >= 1 && first["grouped"].as_u64().unwrap() >= 4, "{first}");
    assert!(first["hashed_s"].as_f64().unwrap() > 0.0);
    let page = fs::read_to_string(place.path("p.html")).unwrap();
    assert_eq!(page.matches("<section>").count() as u64, first["families"].as_u64().unwrap());
    assert_eq!(page.matches("<img").count() as u64, first["grouped"].as_u64().unwrap());
    assert!(
        page.contains("rocket/00009~brighter.jpg") && page.contains("rocket<br>"),
        "names are on the page"
    );

    // Kept hashes are used again, for another radius too, and --rebuild makes them anew.
    let again = place.run(&["families", text(&photos), "--radius", "0", "--json"]).good().json().remove(0);
    assert!(again["hashed_s"].is_null(), "{again}");
    let anew = place.run(&[&args[..], &["--rebuild"]].concat()).good().json().remove(0);
    assert_eq!((&anew["grouped"], anew["hashed_s"].is_f64()), (&first["grouped"], true));

    let words = place.run(&["families", text(&photos)]).good().out;
    assert!(words.contains("within one label") && words.contains("hashes from before"), "{words}");
    let one =
        place.run(&["families", text(&photos), "--radius", "4", "--page", "p.html", "--limit", "1"]).good();
    assert!(one.out.contains("page written to p.html"), "{}", one.out);
    assert_eq!(fs::read_to_string(place.path("p.html")).unwrap().matches("<section>").count(), 1);
}

#[test]
fn bad_samples_have_no_relatives_and_are_named() {
    let place = Place::new();
    let photos = place.photos(10);
    fs::write(photos.join("rocket/<b>.jpg"), "no picture").unwrap();
    let ran = place.run(&["families", text(&photos)]).good();
    assert!(
        ran.err.contains("no hash: sample") && ran.out.contains("1 sample could not be hashed"),
        "{}",
        ran.err
    );
    for entry in fs::read_dir(place.path("catalogs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "families") {
            fs::write(path, "damaged").unwrap();
        }
    }
    let ran = place.run(&["families", text(&photos)]).good();
    assert!(ran.out.contains("hashed in"), "a damaged file is made again: {}", ran.out);
}

#[test]
fn nonsense_is_refused() {
    let place = Place::new();
    let photos = place.photos(10);
    place.run(&["families", text(&photos), "--radius", "11"]).bad(2, &["radius of 11 bits"]);
    place.run(&["families", "nothing"]).bad(1, &["nothing"]);
    place.run(&["families", text(&photos), "--page", "no/such/p.html"]).bad(1, &["write the page", "p.html"]);
}
