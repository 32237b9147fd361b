//! Options by name: how each is read, shown and limited.

use super::{Criteria, Selection};
use crate::score::{EntropyForm, Polarity};

/// One option, by its name.
pub(super) enum Field<'a> {
    /// A whole number within limits.
    Count(&'a mut u32, u32, u32),
    /// A number within limits.
    Number(&'a mut f64, f64, f64),
    /// The same, or none: what is best for the model.
    Auto(&'a mut Option<f64>, f64, f64),
    Switch(&'a mut bool),
    Criteria(&'a mut Criteria),
    Form(&'a mut EntropyForm),
    Polarity(&'a mut Polarity),
}

const CRITERIA: [(&str, Criteria); 3] =
    [("auto", Criteria::Auto), ("entropy", Criteria::Entropy), ("vote", Criteria::Vote)];
const FORMS: [(&str, EntropyForm); 3] =
    [("ce", EntropyForm::Ce), ("literal", EntropyForm::Literal), ("shannon", EntropyForm::Shannon)];
const POLARITIES: [(&str, Polarity); 2] = [("higher", Polarity::Higher), ("lower", Polarity::Lower)];
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];
/// What stands for no number.
const AUTO: &str = "auto";
/// The least share: 0 would be an empty epoch.
const LEAST: f64 = 1e-6;

impl Field<'_> {
    /// Takes a value, or says what it should have been.
    pub(super) fn set(&mut self, text: &str) -> Result<(), String> {
        fn choose<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
            let found = names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
            found.ok_or_else(|| names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or "))
        }
        match self {
            Field::Count(value, least, most) => {
                let number = text.parse().ok().filter(|n| (*least..=*most).contains(n));
                **value = number.ok_or_else(|| format!("a whole number from {least} to {most}"))?;
            }
            Field::Number(value, least, most) => {
                let number = text.parse().ok().filter(|n| (*least..=*most).contains(n));
                **value = number.ok_or_else(|| match *least {
                    LEAST => format!("a number above 0, at most {most}"),
                    _ => format!("a number from {least} to {most}"),
                })?;
            }
            Field::Auto(value, ..) if text == AUTO => **value = None,
            Field::Auto(value, least, most) => {
                let number = text.parse().ok().filter(|n| (*least..=*most).contains(n));
                let expected = || format!("a number from {least} to {most}, or {AUTO}");
                **value = Some(number.ok_or_else(expected)?);
            }
            Field::Switch(value) => {
                let text = match text {
                    "true" => "on",
                    "false" => "off",
                    other => other,
                };
                **value = choose(text, &SWITCH)?;
            }
            Field::Criteria(value) => **value = choose(text, &CRITERIA)?,
            Field::Form(value) => **value = choose(text, &FORMS)?,
            Field::Polarity(value) => **value = choose(text, &POLARITIES)?,
        }
        Ok(())
    }

    pub(super) fn show(&self) -> String {
        fn name<T: PartialEq + Copy>(value: T, names: &[(&str, T)]) -> String {
            names.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name).to_string()
        }
        match self {
            Field::Count(value, ..) => value.to_string(),
            Field::Number(value, ..) => value.to_string(),
            Field::Auto(value, ..) => value.map_or(AUTO.into(), |value| value.to_string()),
            Field::Switch(value) => name(**value, &SWITCH),
            Field::Criteria(value) => name(**value, &CRITERIA),
            Field::Form(value) => name(**value, &FORMS),
            Field::Polarity(value) => name(**value, &POLARITIES),
        }
    }
}

/// More epochs than anybody trains.
const EPOCHS_MAX: u32 = 1_000_000;

impl Selection {
    /// The options of this way, to be read and set by name.
    pub(super) fn fields(&mut self) -> Vec<(&'static str, Field<'_>)> {
        use Field::{Auto, Count, Number, Switch};
        match self {
            Selection::Uniform => Vec::new(),
            Selection::Bucket(b) => vec![
                ("warmup", Count(&mut b.warmup, 1, EPOCHS_MAX)),
                ("full_share", Number(&mut b.full_share, 0.0, 1.0)),
                ("smoothing", Number(&mut b.smoothing, 0.0, 0.999)),
                ("relax", Number(&mut b.relax, 0.0, 10.0)),
                ("relax_cost", Number(&mut b.relax_cost, 0.0, 10.0)),
                ("quantile", Number(&mut b.quantile, 0.0, 1.0)),
                ("floor", Number(&mut b.floor, LEAST, 1.0)),
                ("out_max", Number(&mut b.out_max, LEAST, 1.0)),
                ("recall", Switch(&mut b.recall)),
                ("recall_share", Number(&mut b.recall_share, LEAST, 1.0)),
                ("stagnation", Count(&mut b.stagnation, 1, EPOCHS_MAX)),
                ("probe", Number(&mut b.probe, 0.0, 1.0)),
                ("soft", Number(&mut b.soft, 0.0, 0.95)),
                ("criteria", Field::Criteria(&mut b.criteria)),
                ("entropy", Field::Form(&mut b.entropy)),
                ("polarity", Field::Polarity(&mut b.polarity)),
            ],
            Selection::Online(o) => vec![
                ("warmup", Count(&mut o.warmup, 1, EPOCHS_MAX)),
                ("pressure", Number(&mut o.pressure, 1.0, 1e9)),
                ("pressure_end", Number(&mut o.pressure_end, 1.0, 1e9)),
                ("share", Number(&mut o.share, LEAST, 1.0)),
            ],
            Selection::ActiveBias(a) => {
                vec![("warmup", Count(&mut a.warmup, 2, EPOCHS_MAX)), ("draw", Switch(&mut a.draw))]
            }
            Selection::BiggestLoser(s) => vec![
                ("warmup", Count(&mut s.warmup, 1, EPOCHS_MAX)),
                ("power", Number(&mut s.power, 0.0, 100.0)),
                ("history", Count(&mut s.history, 1, 1 << 20)),
                ("staleness", Count(&mut s.staleness, 0, 1_000)),
            ],
            Selection::Proxy(p) => {
                vec![
                    ("warmup", Count(&mut p.warmup, 1, EPOCHS_MAX)),
                    ("share", Number(&mut p.share, LEAST, 1.0)),
                ]
            }
            Selection::Iis(i) => vec![
                ("warmup", Count(&mut i.warmup, 1, EPOCHS_MAX)),
                ("reuse", Count(&mut i.reuse, 1, EPOCHS_MAX)),
                ("power", Number(&mut i.power, 0.0, 100.0)),
                ("history", Count(&mut i.history, 1, 1 << 20)),
            ],
            Selection::InfoBatch(i) => vec![
                ("warmup", Count(&mut i.warmup, 1, EPOCHS_MAX)),
                ("prune", Number(&mut i.prune, 0.0, 0.99)),
                ("full_share", Number(&mut i.full_share, 0.0, 1.0)),
            ],
            Selection::Weighted(w) => vec![
                ("warmup", Count(&mut w.warmup, 1, EPOCHS_MAX)),
                ("full_share", Number(&mut w.full_share, 0.0, 1.0)),
                ("noise", Auto(&mut w.noise, 0.0, 10.0)),
                ("early", Number(&mut w.early, 1.0, 100.0)),
                ("easy", Auto(&mut w.easy, 1.0, 100.0)),
                ("least", Auto(&mut w.least, 0.01, 1.0)),
                ("weight_max", Auto(&mut w.weight_max, 1.0, 1_000.0)),
                ("batch_least", Auto(&mut w.batch_least, 0.01, 1.0)),
                ("smoothing", Number(&mut w.smoothing, 0.0, 0.999)),
                ("cost", Switch(&mut w.cost)),
                ("wrong_max", Number(&mut w.wrong_max, LEAST, 1.0)),
            ],
        }
    }
}
