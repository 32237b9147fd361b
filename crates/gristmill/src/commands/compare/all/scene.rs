//! The ground of one scenario: data, a store or a node made slow, a recipe, test data, models.
//!
//! Everything is opened once and shared by all configurations, but for a node, which begins anew with each training: it
//! would know what another one had it do. What was made for it
//! (unpacked or cut pictures, a node in a network of its own) is taken down with the value.

use super::configuration::Setting;
use super::scenario::Scenario;
use crate::args::{CompareAllArgs, ModelArgs};
use crate::commands::compare::unpack;
use crate::commands::compare::upstream::{Link, Upstream};
use crate::commands::source::{self, Asked, Source};
use crate::commands::{catalogued, rate, train};
use anyhow::Result;
use gristmill_node::config::{Config, Origin};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::Loader;
use gristmill_node::{Error, open};
use gristmill_ops::{Encoding, Recipe};
use gristmill_train::TrainOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::TempDir;

/// What is made of photos: small enough for a small model.
const PHOTOS: &str = "[[op]]\nkind = \"decode\"\n[[op]]\nkind = \"random-resized-crop\"\nsize = 32\n\
    scale = [0.6, 1.0]\n\
    [[op]]\nkind = \"flip\"\n[[op]]\nkind = \"to-tensor\"\n\
    [[op]]\nkind = \"normalise\"\nmean = [0.485, 0.456, 0.406]\nstd = [0.229, 0.224, 0.225]\n";
/// The same of those that are tested with, without chance.
const TEST_PHOTOS: &str = "[[op]]\nkind = \"decode\"\n[[op]]\nkind = \"resize\"\nsize = 36\n[[op]]\nkind = \"center-crop\"\n\
    size = 32\n[[op]]\nkind = \"to-tensor\"\n\
    [[op]]\nkind = \"normalise\"\nmean = [0.485, 0.456, 0.406]\nstd = [0.229, 0.224, 0.225]\n";
/// Photos that are made to train and to test with, where none were named: how many, from which seed and of which part of
/// the shipped pictures; and the program that makes them. Of this quality they have most bytes for the time that decoding
/// takes: with less no link that people have would be the limit on few cores.
const CUT: [(&str, u32, u32, &str); 2] = [("train", 4_000, 1, "4000-train"), ("val", 1_000, 2, "1000-test")];
const CUT_QUALITY: u32 = 100;
const CUTTER: &str = "cut-photos";
/// With a cache in mind nothing is read into memory as a whole, whoever has the cache.
const NOT_RESIDENT: &str = "1%";

/// The ground of one scenario.
pub(super) struct Scene<'a> {
    pub(super) args: &'a CompareAllArgs,
    pub(super) scenario: Scenario,
    pub(super) set: Arc<DataSet>,
    pub(super) recipe: Recipe,
    pub(super) test: Loader,
    /// The models of the jobs.
    pub(super) models: Vec<TrainOptions>,
    /// Samples per second of a job's accelerator.
    pub(super) accelerator: f64,
    pub(super) first_seed: u64,
    /// What slows it down, in words.
    pub(super) about: String,
    settings: Vec<Setting>,
    /// Where the node is, if there is one, and how its data set is opened.
    node: Option<(Mutex<Upstream>, Config)>,
    // Taken down in this order, after the data set.
    _link: Option<Link>,
    _made: Option<TempDir>,
}

impl<'a> Scene<'a> {
    pub(super) fn open(args: &'a CompareAllArgs, scenario: Scenario) -> Result<Scene<'a>> {
        let quiet = args.ground.common.json;
        let accelerator = args.accelerator.unwrap_or_else(|| scenario.accelerator());
        // Only what says so is steered: test data is not.
        let mut settings: Vec<Setting> =
            vec![("selection.epochs", args.ground.model.epochs.to_string()), ("steer.mode", "off".into())];
        let Places { train, test, made } = places(args, scenario)?;
        if let Some(folder) = &made {
            settings.push(("catalog.folder", folder.path().display().to_string()));
        }
        let near = config(args, &settings)?;
        let (mut link, mut upstream, mut url, mut about) = (None, None, train.clone(), String::new());
        let mut slow = settings.clone();
        if scenario == Scenario::Link {
            let made = link.insert(Link::new(&args.by, rate::bytes_per_s("--link", &args.link)?)?);
            about = format!("the link: {made}");
            // Built once, so that the node need not.
            catalogued(&train, None, &near, None, quiet)?;
            let pixels = near.settings().serve().op_pixels_bytes_max;
            let node = upstream.insert(Upstream::start(&train, args.cores, pixels, made, near.settings())?);
            url = node.url().to_string();
            slow.push(("serve.token_file", node.token_file().clone()));
            slow.extend(node.throttle().map(|rate| ("store.throttle_bytes_per_s", rate)));
            if args.round_trip_ms > 0 {
                about = format!("{about}, {} ms there and back", args.round_trip_ms);
                slow.push(("store.throttle_latency_ms", args.round_trip_ms.to_string()));
            }
            // Whatever the link is, the node computes on the cores that the loader has, too.
            slow.push(("split.same_machine", "true".into()));
        }
        let (latency_ms, requests_per_s) = scenario.store(args.latency_ms);
        if latency_ms > 0 {
            about = format!("the store: {latency_ms} ms to the first byte");
            slow.push(("store.throttle_latency_ms", latency_ms.to_string()));
        }
        if requests_per_s > 0 {
            about = format!("{about}, {requests_per_s} reads per second");
            slow.push(("store.throttle_requests_per_s", requests_per_s.to_string()));
        }
        if about.is_empty() {
            about = "the data: near".into();
        }
        let about = format!("{about}; an accelerator of {accelerator} samples/s");
        let mut opening = slow.clone();
        if scenario != Scenario::Compute {
            opening.push(("cache.size", NOT_RESIDENT.into()));
        }
        let asked = Asked { quiet: true, ..Asked::default() };
        let opening = config(args, &opening)?;
        let set = Source::open(&url, asked, &opening)?.set;
        let node = upstream.map(|upstream| (Mutex::new(upstream), opening));
        let photos = set.catalog().encoding() == Encoding::Sniffed;
        let own = |text| -> Result<Recipe> { Ok(Recipe::parse(text)?) };
        let recipe = match near.settings().recipe() {
            "" if photos => own(PHOTOS)?,
            named => train::recipe(named, &set)?,
        };
        let test_recipe = match &args.ground.test_recipe {
            Some(named) => open::recipe(named)?.unwrap_or_else(|| recipe.clone()),
            None if photos && near.settings().recipe().is_empty() => own(TEST_PHOTOS)?,
            None => recipe.clone(),
        };
        let test_set = Source::open(&test, asked, &near)?.set;
        let test = train::test_loader(test_set, &test_recipe, near.settings())?;
        let mut models = vec![train::options(&args.ground.model, 0)?];
        if scenario == Scenario::Jobs {
            let model = ModelArgs { hidden: args.hidden_b.clone(), ..args.ground.model.clone() };
            models.push(train::options(&model, 0)?);
        }
        Ok(Scene {
            args,
            scenario,
            set,
            recipe,
            test,
            models,
            accelerator,
            first_seed: near.settings().loader().seed,
            about,
            settings: slow,
            node,
            _link: link,
            _made: made,
        })
    }

    /// The data set as a run finds it: behind a new node, where there is one.
    pub(super) fn opened(&self) -> Result<Arc<DataSet>> {
        let asked = Asked { quiet: true, ..Asked::default() };
        self.node.as_ref().map_or_else(
            || Ok(Arc::clone(&self.set)),
            |(node, opening)| {
                let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
                node.restart()?;
                Ok(Source::open(node.url(), asked, opening)?.set)
            },
        )
    }

    /// The settings of a run: those of the scenario, and over them its own.
    pub(super) fn config(&self, own: &[Setting], seed: u64) -> Result<Config> {
        let seed = [("loader.seed", seed.to_string())];
        config(self.args, &[&self.settings[..], own, &seed].concat())
    }

    /// What tells this ground from others, as far as it changes what trainings come to.
    pub(super) fn identity(&self) -> String {
        let digest = self.set.catalog().digest();
        let told: Vec<_> = self
            .settings
            .iter()
            .filter(|(key, _)| !key.ends_with("folder") && !key.ends_with("file"))
            .collect();
        // Whatever else was typed or set, and the program itself: a kept training is one that this command would make.
        let set = self.config(&[], 0).map_or_else(
            |e| e.to_string(),
            |config| {
                let own =
                    |key: &str| key.ends_with("folder") || key.ends_with("file") || key == "loader.seed";
                let rows =
                    config.rows().filter(|(key, _, origin)| **origin != Origin::Default && !own(key.name));
                rows.map(|(key, value, _)| format!("{}={value}", key.name)).collect::<Vec<_>>().join(" ")
            },
        );
        let program = std::env::current_exe()
            .and_then(|path| path.metadata())
            .map(|file| (file.len(), file.modified().ok()));
        format!(
            "{digest:?} {:?} {told:?} {:?} {} {set} {:?} {:?} {:?} {} {program:?}",
            self.recipe,
            self.models,
            self.about,
            self.args.ground.test,
            self.args.ground.test_recipe,
            self.args.cores,
            self.args.ground.model.epochs
        )
    }
}

/// The settings that were typed, and over them these.
fn config(args: &CompareAllArgs, settings: &[Setting]) -> Result<Config> {
    let typed: Vec<(&str, Option<&String>)> =
        settings.iter().map(|(key, value)| (*key, Some(value))).collect();
    args.ground.config(&typed)
}

/// Where the data lies, and the folder that was made for it.
struct Places {
    train: String,
    test: String,
    made: Option<TempDir>,
}

fn places(args: &CompareAllArgs, scenario: Scenario) -> Result<Places> {
    let shown = |path: PathBuf| path.display().to_string();
    if args.ground.source.is_none() && scenario == Scenario::Link {
        let folder = folder()?;
        let [train, test] = cut(folder.path())?;
        return Ok(Places { train: shown(train), test: shown(test), made: Some(folder) });
    }
    let (named, beside) = if let Some(source) = &args.ground.source {
        (source.clone(), source::test_beside(source))
    } else {
        let absent = || Error::config("the shipped pictures are not here").hint("name a data set");
        let (train, test) = source::shipped().ok_or_else(absent)?;
        (shown(train), Some(test))
    };
    // A wrong path is said before what is missing beside it.
    if !named.contains("://") && !named.contains('{') && !Path::new(&named).exists() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(Error::io("open", &named, missing).hint("check the spelling of the path").into());
    }
    let test = args.ground.test.clone().or_else(|| beside.map(shown)).ok_or_else(|| {
        Error::config("what is compared is judged by test data, and there is none")
            .hint("name some with --test")
    })?;
    // Nothing inside a gzip file can be read by itself.
    if named.ends_with("-ubyte.gz") {
        let (folder, images) = unpack::unpack(Path::new(&named))?;
        return Ok(Places { train: shown(images), test, made: Some(folder) });
    }
    Ok(Places { train: named, test, made: None })
}

fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("gristmill-compare-").tempdir();
    Ok(folder.map_err(|e| Error::io("make", "a temporary folder", e))?)
}

/// Makes photos to train and to test with out of the shipped pictures.
fn cut(folder: &Path) -> Result<[PathBuf; 2]> {
    let own = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    let absent = || {
        Error::config("scenario a needs photos, and none were named")
            .hint(format!("name a folder of class folders; the program {CUTTER} of a source build makes one"))
    };
    // Test programs lie one folder below the others.
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join(CUTTER));
    let cutter = beside.into_iter().find(|path| path.is_file()).ok_or_else(absent)?;
    let made = CUT.map(|(name, ..)| folder.join(name));
    for ((_, count, seed, part), path) in CUT.iter().zip(&made) {
        let numbers = [*count, *seed, CUT_QUALITY].map(|number| number.to_string());
        let output = Command::new(&cutter).arg(path).args(numbers).arg(part).output();
        let output = output.map_err(|e| Error::io("run", cutter.display(), e))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::config(format!("{CUTTER} failed: {}", said.trim())).into());
        }
    }
    // The system would write them out during the first training.
    rustix::fs::sync();
    Ok(made)
}
