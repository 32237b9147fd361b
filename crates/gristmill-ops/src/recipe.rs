//! A recipe: the ordered list of ops, as text and as data.
//!
//! Written as TOML (`[[op]]` tables) or JSON (`{"op": [...]}`), or named: the presets are what people train with
//! most. A key that means nothing is an error, so a misspelt option never goes unnoticed. Whether the ops fit
//! each other and the data is checked when a [`Pipeline`](crate::Pipeline) is made, which knows the data.

mod op;

use std::fmt;

use gristmill_core::nearest::nearest;
use serde::{Deserialize, Serialize};

pub use op::{Op, Size};

use crate::{Dtype, Layout};

/// The ordered list of ops that turn a sample's bytes into its place in a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The ops, first to last.
    #[serde(rename = "op")]
    pub ops: Vec<Op>,
}

/// Why a recipe cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecipeError {
    /// No preset has this name.
    UnknownPreset {
        /// The name that was asked for.
        name: String,
        /// The preset that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The text is not a recipe.
    Syntax {
        /// What the parser says.
        reason: String,
    },
    /// An op does not fit: its values, its place, or the data.
    Op {
        /// Which op, from 0.
        index: usize,
        /// Its name.
        name: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The recipe as a whole does not fit.
    Whole {
        /// What is wrong and what would be right.
        reason: String,
    },
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecipeError::UnknownPreset { name, nearest } => {
                write!(f, "no recipe is called {name:?}")?;
                if let Some(nearest) = nearest {
                    write!(f, "; did you mean {nearest:?}?")?;
                }
                write!(f, " (there are {})", Recipe::PRESETS.join(", "))
            }
            RecipeError::Syntax { reason } => write!(f, "not a recipe: {}", reason.trim_end()),
            RecipeError::Op { index, name, reason } => {
                write!(f, "recipe op {} ({name}): {reason}", index + 1)
            }
            RecipeError::Whole { reason } => write!(f, "recipe: {reason}"),
        }
    }
}

impl std::error::Error for RecipeError {}

impl Recipe {
    /// The names that [`Recipe::preset`] knows.
    pub const PRESETS: &'static [&'static str] = &["imagenet-train", "imagenet-eval", "cifar-train", "mnist"];

    /// The preset of this name.
    pub fn preset(name: &str) -> Result<Recipe, RecipeError> {
        let tensor = Op::ToTensor { dtype: Dtype::F32, layout: Layout::Nchw };
        let imagenet = Op::Normalise { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] };
        let ops = match name {
            "imagenet-train" => vec![
                Op::Decode,
                Op::RandomResizedCrop {
                    size: Size::Side(224),
                    scale: [0.08, 1.0],
                    ratio: [3.0 / 4.0, 4.0 / 3.0],
                },
                Op::Flip { probability: 0.5 },
                tensor,
                imagenet,
            ],
            "imagenet-eval" => vec![
                Op::Decode,
                Op::Resize { size: Size::Side(256) },
                Op::CenterCrop { size: Size::Side(224) },
                tensor,
                imagenet,
            ],
            "cifar-train" => vec![
                Op::Decode,
                Op::RandomCrop { size: Size::Side(32), padding: 4 },
                Op::Flip { probability: 0.5 },
                tensor,
                Op::Normalise { mean: vec![0.4914, 0.4822, 0.4465], std: vec![0.2470, 0.2435, 0.2616] },
            ],
            // The resize does nothing to pictures that have this size already, as those of MNIST do.
            "mnist" => vec![
                Op::Decode,
                Op::Grey,
                Op::Resize { size: Size::Exact([28, 28]) },
                tensor,
                Op::Normalise { mean: vec![0.1307], std: vec![0.3081] },
            ],
            _ => {
                let nearest = nearest(name, Recipe::PRESETS.iter().copied());
                return Err(RecipeError::UnknownPreset { name: name.to_owned(), nearest });
            }
        };
        Ok(Recipe { ops })
    }

    /// Reads a recipe from TOML, or from JSON if the text begins with a brace.
    pub fn parse(text: &str) -> Result<Recipe, RecipeError> {
        let recipe = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())
        } else {
            toml::from_str(text).map_err(|error| error.to_string())
        };
        recipe.map_err(|reason| RecipeError::Syntax { reason })
    }

    /// The recipe as TOML, which [`Recipe::parse`] reads back.
    pub fn to_toml(&self) -> String {
        // Every value of a recipe has a TOML form, so there is nothing that could fail.
        toml::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_survive_text() {
        for name in Recipe::PRESETS {
            let recipe = Recipe::preset(name).unwrap();
            assert_eq!(Recipe::parse(&recipe.to_toml()).unwrap(), recipe, "{name} as TOML");
            let json = serde_json::to_string(&recipe).unwrap();
            assert_eq!(Recipe::parse(&json).unwrap(), recipe, "{name} as JSON");
        }
    }

    #[test]
    fn defaults_are_filled_in() {
        let text = "[[op]]\nkind = 'decode'\n[[op]]\nkind = 'random-resized-crop'\nsize = 224\n\
                    [[op]]\nkind = 'flip'\n[[op]]\nkind = 'to-tensor'\n\
                    [[op]]\nkind = 'normalise'\nmean = [0.485, 0.456, 0.406]\nstd = [0.229, 0.224, 0.225]\n";
        assert_eq!(Recipe::parse(text).unwrap(), Recipe::preset("imagenet-train").unwrap());
    }

    #[test]
    fn misspelt_presets_get_the_nearest_name() {
        for (asked, nearest) in [
            ("imagenet_train", Some("imagenet-train")),
            ("cifar-trian", Some("cifar-train")),
            ("MNIST", Some("mnist")),
            ("coco", None),
            ("", None),
        ] {
            let error = Recipe::preset(asked).unwrap_err();
            assert_eq!(error, RecipeError::UnknownPreset { name: asked.into(), nearest });
            assert!(
                error.to_string().contains("imagenet-train, imagenet-eval, cifar-train, mnist"),
                "{error}"
            );
            assert_eq!(error.to_string().contains("did you mean"), nearest.is_some(), "{error}");
        }
    }

    #[test]
    fn text_that_is_no_recipe() {
        for (text, says) in [
            ("", "missing field `op`"),
            ("{", "EOF"),
            ("[[op]]\nkind = 'spin'", "spin"),
            ("[[op]]\nsize = 3", "kind"),
            ("[[op]]\nkind = 'resize'", "size"),
            ("[[op]]\nkind = 'resize'\nsize = -1", "Size"),
            ("[[op]]\nkind = 'flip'\nchance = 0.5", "chance"),
            ("[[op]]\nkind = 'decode'\nfast = true", "fast"),
            ("[[op]]\nkind = 'to-tensor'\ndtype = 'f64'", "f64"),
            ("name = 'x'\n[[op]]\nkind = 'decode'", "name"),
            ("{\"op\": [{\"kind\": \"grey\", \"x\": 1}]}", "x"),
        ] {
            let error = Recipe::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?} gives {error:?}, which does not name {says:?}");
        }
    }

    #[test]
    fn ops_know_themselves() {
        let train = Recipe::preset("imagenet-train").unwrap();
        assert_eq!(
            train.ops.iter().map(Op::is_random).collect::<Vec<_>>(),
            [false, true, true, false, false]
        );
        assert_eq!(train.ops[1].random_inputs(), ["seed", "epoch", "sample", "op"]);
        assert_eq!(train.ops[1].size_after(None), Some([224, 224]));
        let eval = Recipe::preset("imagenet-eval").unwrap();
        assert_eq!(eval.ops[1].size_after(None), None);
        assert_eq!(eval.ops[1].size_after(Some([375, 500])), Some([256, 341]));
    }
}
