//! Recipes that cannot work are refused before any sample is read, with a sentence that says why.

use gristmill_ops::{Encoding, Limits, Pipeline, Recipe};

use crate::making::{LIMITS, raw};

const END: &str = "[[op]]\nkind = 'to-tensor'\n";

fn refusal(text: &str, encoding: Encoding) -> String {
    let recipe = Recipe::parse(text).unwrap();
    Pipeline::new(&recipe, encoding, LIMITS).unwrap_err().to_string()
}

#[test]
fn what_does_not_fit_is_named() {
    let op = |text: &str| format!("[[op]]\nkind = 'decode'\n[[op]]\nkind = {text}\n{END}");
    let normalise = "[[op]]\nkind = 'normalise'\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n";
    let crop = "'center-crop'\nsize = 8";
    for (text, says) in [
        ("op = []".to_owned(), "there is no op"),
        (END.to_owned(), "op 1 (to-tensor): the first op must be decode"),
        (op("'decode'"), "op 2 (decode): only the first op"),
        (op("'grey'"), "differ in size"),
        (op("'resize'\nsize = 256"), "add a crop"),
        (op("'resize'\nsize = 0"), "op 2 (resize): size 0 x 0"),
        (op("'center-crop'\nsize = [3, 70000]"), "size 3 x 70000"),
        (op("'random-crop'\nsize = 3\npadding = 99999"), "padding 99999"),
        (op("'random-resized-crop'\nsize = 3\nscale = [0.0, 1.0]"), "scale [0, 1]"),
        (op("'random-resized-crop'\nsize = 3\nscale = [0.9, 0.1]"), "ascending"),
        (op("'random-resized-crop'\nsize = 3\nscale = [0.1, 2.0]"), "at most 1"),
        (op("'random-resized-crop'\nsize = 3\nratio = [nan, 1.0]"), "ratio [NaN, 1]"),
        (op("'flip'\nprobability = 1.5"), "probability 1.5"),
        (op(crop) + END, "only normalise can follow"),
        (op(crop).replace(END, ""), "the last op must be to-tensor"),
        (op(crop).replace(END, normalise), "it must follow to-tensor"),
        (op(crop) + normalise + normalise, "normalises twice"),
        (op(crop) + &normalise.replace("mean = [0.5, 0.5, 0.5]", "mean = [0.5]"), "mean has 1 and std 3"),
        (
            op(crop) + &normalise.replace("std = [0.5, 0.5, 0.5]", "std = [0.5, 0.0, 0.5]"),
            "std 0 is not above 0",
        ),
        (op(crop) + &normalise.replace("mean = [0.5, 0.5, 0.5]", "mean = [0.5, inf, 0.5]"), "mean inf"),
        (op(crop) + "dtype = 'u8'\n" + normalise, "u8 cannot be normalised"),
    ] {
        let sentence = refusal(&text, Encoding::Sniffed);
        assert!(sentence.contains(says), "{text}\ngives {sentence:?}, which does not say {says:?}");
        assert!(!sentence.contains('\n'), "{sentence:?} is not one line");
    }
}

#[test]
fn raw_shapes_are_checked() {
    let mnist = "[[op]]\nkind = 'decode'\n".to_owned() + END;
    assert!(refusal(&mnist, raw(28, 28, 2)).contains("2 channels"));
    assert!(refusal(&mnist, raw(0, 28, 1)).contains("0 x 28"));
    let small = Limits { pixels_max: 100, ..LIMITS };
    let recipe = Recipe::parse(&mnist).unwrap();
    let error = Pipeline::new(&recipe, raw(28, 28, 1), small).unwrap_err().to_string();
    assert!(error.contains("over the limit of 100 pixels"), "{error}");
    let crop =
        format!("[[op]]\nkind = 'decode'\n[[op]]\nkind = 'random-crop'\nsize = 40\npadding = 4\n{END}");
    assert!(refusal(&crop, raw(28, 28, 1)).contains("smaller than the crop"));
    assert!(Pipeline::new(&Recipe::parse(&mnist).unwrap(), raw(28, 28, 1), LIMITS).is_ok());
}

#[test]
fn presets_compile() {
    for (name, shape) in [
        ("imagenet-train", [3, 224, 224]),
        ("imagenet-eval", [3, 224, 224]),
        ("cifar-train", [3, 32, 32]),
        ("mnist", [1, 28, 28]),
    ] {
        let pipeline = Pipeline::new(&Recipe::preset(name).unwrap(), Encoding::Sniffed, LIMITS).unwrap();
        assert_eq!(pipeline.output().shape(), shape, "{name}");
    }
}
