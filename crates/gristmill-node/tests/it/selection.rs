//! Selection and families at work in the loader: fewer bytes are read, the right bytes are served, ranks agree.

use crate::loader::{data, options, photos, recipe};
use gristmill_core::family::Families;
use gristmill_core::plan::Shape;
use gristmill_core::score::Feedback;
use gristmill_core::select::{Norm, Selection};
use gristmill_node::loader::{Batch, Data, Loader, LoaderOptions};
use gristmill_node::selection::{Choice, FamilyUse, SelectionOptions};
use gristmill_node::store::{StoreOptions, ThrottleOptions};
use std::sync::Arc;

fn selecting(kind: &str, families: FamilyUse) -> LoaderOptions {
    let mut selection = Selection::named(kind).unwrap();
    // A third is wrong for ever.
    let _ = selection.set("wrong_max", "1");
    let selection = SelectionOptions { selection, epochs: Some(20), families, ..SelectionOptions::default() };
    LoaderOptions { selection, ..options() }
}

/// A trainer to whom two samples of three are easy.
fn tell(choice: &Choice, ids: &[u32]) {
    let p_true: Vec<f32> = ids.iter().map(|id| if id % 3 == 0 { 0.4 } else { 0.995 }).collect();
    let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
    let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
    choice
        .feedback(&Feedback { ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None })
        .unwrap();
}

fn train(loader: &Loader, epoch: u64) -> (Vec<Batch>, gristmill_node::report::EpochReport) {
    let mut running = loader.epoch(epoch, 0).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        if let Some(choice) = loader.choice() {
            tell(choice, &batch.ids);
        }
        batches.push(*batch);
    }
    (batches, running.report())
}

#[test]
fn what_is_skipped_is_not_read() {
    let set = data(photos(), &StoreOptions::default());
    let loader = Loader::new(set, None, selecting("weighted", FamilyUse::Off)).unwrap();
    let (_, full) = train(&loader, 0);
    let (batches, less) = train(&loader, 1);
    let ids: Vec<u32> = batches.iter().flat_map(|batch| batch.ids.clone()).collect();
    let facts = less.selection.unwrap();
    assert!(ids.len() < 70 && facts.kept as usize == ids.len(), "{} of 90", ids.len());
    assert!((0..90).filter(|id| id % 3 == 0).all(|id| ids.contains(&id)), "what was wrong stays");
    assert!(less.bytes < full.bytes * 8 / 10, "{} of {} bytes", less.bytes, full.bytes);
    let probe = loader.choice().unwrap().probe();
    assert_eq!(probe.len(), 10, "one of each class");
    for batch in &batches {
        let heavy = |(id, weight): (&u32, &f32)| (*weight > 1.0) == (id % 3 != 0 && !probe.contains(id));
        assert!(batch.ids.iter().zip(&batch.weights).all(heavy));
    }
    // A batch belongs to its plan: entered in the middle, the rest is the same.
    let rest: Vec<Vec<u32>> = loader.epoch(1, 2).unwrap().map(|batch| batch.unwrap().ids.clone()).collect();
    assert_eq!(rest, batches[2..].iter().map(|batch| batch.ids.clone()).collect::<Vec<_>>());
}

/// Every third sample is a relative of the two after it.
fn families() -> Arc<Families> {
    let hashes: Vec<u64> = (0..90_u64).map(|id| 0xffff << (id / 3 % 40)).collect();
    Arc::new(Families::group(&hashes, &[0; 90], 0, false).unwrap())
}

#[test]
fn one_of_each_family_is_enough_when_computing_is_slow() {
    let set = data(photos(), &StoreOptions::default());
    let loader = Loader::new(set, None, selecting("uniform", FamilyUse::Remove)).unwrap();
    let loader = loader.with_families(families()).unwrap();
    let mut times = [0; 90];
    for epoch in 0..3 {
        let (batches, report) = train(&loader, epoch);
        let ids: Vec<u32> = batches.iter().flat_map(|batch| batch.ids.clone()).collect();
        assert_eq!((ids.len(), report.selection.unwrap().removed), (30, 60));
        ids.iter().for_each(|id| times[*id as usize] += 1);
    }
    assert_eq!(times, [1; 90], "over three epochs every one of three is seen");
}

#[test]
fn a_class_whose_samples_look_alike_keeps_its_floor() {
    let set = data(photos(), &StoreOptions::default());
    let labels = set.catalog().labels().unwrap();
    let hash = |id: u64| if labels[id as usize] == 0 { 1 } else { id << 8 | 1 };
    let hashes: Vec<u64> = (0..90).map(hash).collect();
    let families = Arc::new(Families::group(&hashes, labels, 0, false).unwrap());
    let alike = families.largest();
    assert!(alike >= 5, "class 0 is one family of {alike}");
    let mut options = selecting("uniform", FamilyUse::Remove);
    options.selection.class_floor = 0.4;
    let least = (alike as f64 * 0.4) as usize;
    let loader = Loader::new(set.clone(), None, options).unwrap().with_families(families).unwrap();
    for epoch in 0..3 {
        let (batches, report) = train(&loader, epoch);
        let kept = batches.iter().flat_map(|batch| &batch.labels).filter(|label| **label == 0).count();
        let facts = report.selection.unwrap();
        assert_eq!(kept, least);
        assert_eq!((facts.for_classes as usize, facts.removed as usize), (least - 1, alike - least));
        assert!((facts.class_shares[0] - least as f32 / alike as f32).abs() < 1e-6);
    }
}

#[test]
fn a_relative_in_memory_stands_in_when_fetching_is_slow() {
    let throttle = ThrottleOptions { latency_ms: 2, ..ThrottleOptions::default() };
    let set = data(photos(), &StoreOptions { throttle: Some(throttle), ..StoreOptions::default() });
    let plain = Loader::new(set.clone(), None, options()).unwrap();
    let mut bytes = vec![0; 90];
    for batch in train(&plain, 0).0 {
        let Data::Raw(raw) = &batch.data else { unreachable!() };
        batch.ids.iter().zip(raw).for_each(|(id, raw)| bytes[*id as usize] = raw.len());
    }
    for shape in [Shape::single(8), Shape { world: 2, rank: 1, ..Shape::single(4) }] {
        let options = LoaderOptions { shape, ..selecting("uniform", FamilyUse::Repeat) };
        let loader = Loader::new(set.clone(), None, options).unwrap().with_families(families()).unwrap();
        let (batches, report) = train(&loader, 0);
        let ids: Vec<u32> = batches.iter().flat_map(|batch| batch.ids.clone()).collect();
        assert_eq!(ids.len(), 90 / shape.world as usize);
        assert!(report.selection.unwrap().stand_ins >= 30);
        let mut read = ids.clone();
        read.sort_unstable();
        read.dedup();
        assert_eq!(
            report.bytes as usize,
            read.iter().map(|id| bytes[*id as usize]).sum::<usize>(),
            "each read once"
        );
        for batch in &batches {
            let Data::Raw(raw) = &batch.data else { unreachable!() };
            assert!(
                batch.ids.iter().zip(raw).all(|(id, raw)| bytes[*id as usize] == raw.len()),
                "its own bytes"
            );
            let mut ids = batch.ids.clone();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), batch.ids.len(), "never twice in a batch");
        }
    }
}

#[test]
fn what_is_served_again_is_cropped_anew() {
    let set = data(photos(), &StoreOptions::default());
    let loader = Loader::new(set, Some(&recipe()), selecting("uniform", FamilyUse::Repeat)).unwrap();
    let loader = loader.with_families(families()).unwrap();
    let mut seen = std::collections::BTreeMap::<u32, Vec<Vec<u8>>>::new();
    for batch in train(&loader, 0).0 {
        let Data::Tensor(tensor) = &batch.data else { unreachable!() };
        let each = tensor.bytes().chunks_exact(tensor.output().bytes());
        batch
            .ids
            .iter()
            .zip(each)
            .for_each(|(id, pixels)| seen.entry(*id).or_default().push(pixels.to_vec()));
    }
    let repeated: Vec<_> = seen.values().filter(|pixels| pixels.len() > 1).collect();
    assert!(repeated.len() >= 20, "{}", repeated.len());
    let anew = repeated.iter().filter(|pixels| pixels[0] != pixels[1]).count();
    assert_eq!(anew, repeated.len());
}

#[test]
fn the_use_of_families_is_fixed_when_an_epoch_begins() {
    let throttle = ThrottleOptions { latency_ms: 5, ..ThrottleOptions::default() };
    let set = data(photos(), &StoreOptions { throttle: Some(throttle), ..StoreOptions::default() });
    let loader = Loader::new(set, None, selecting("uniform", FamilyUse::Auto)).unwrap();
    let loader = loader.with_families(families()).unwrap();
    let ids = |from: u32| -> Vec<Vec<u32>> {
        loader.epoch(0, from).unwrap().map(|batch| batch.unwrap().ids.clone()).collect()
    };
    let whole = ids(0);
    assert_eq!(loader.choice().unwrap().chosen().unwrap().removed, 60, "nothing is known yet: remove");
    // The epoch that ended has shown that training waits for the store; this epoch is what it was all the same.
    assert_eq!(ids(2), whole[2..]);
    // On a busy machine the first epochs may look as if the consumer were slow, but not all of them do.
    let next = (1..=6).find_map(|epoch| {
        loader.epoch(epoch, 0).unwrap().for_each(drop);
        loader.choice().unwrap().chosen().filter(|chosen| chosen.io_bound)
    });
    let next = next.expect("training waits for the store");
    assert!(next.removed == 0 && next.stand_ins > 0, "{next:?}");
}

#[test]
fn more_draws_than_samples_fit_one_batch() {
    let set = data(photos(), &StoreOptions::default());
    let whole = LoaderOptions { shape: Shape::single(500), ..options() };
    Loader::new(set.clone(), Some(&recipe()), whole.clone()).unwrap(); // a plain epoch needs no room for repeats
    let mut options = LoaderOptions { memory_bytes_max: 512 << 20, ..whole };
    options.selection = selecting("online", FamilyUse::Off).selection;
    options.selection.class_floor = 1.0; // what was not drawn is added
    let loader = Loader::new(set, Some(&recipe()), options).unwrap();
    train(&loader, 0);
    let batches = train(&loader, 1).0;
    assert_eq!(batches.len(), 1);
    assert!(batches[0].len() > 90, "{}", batches[0].len());
}

#[test]
fn ranks_that_share_what_they_heard_select_as_one() {
    let labels: Vec<u32> = (0..500).map(|id| id % 10).collect();
    let sizes = vec![784; 500];
    let options = selecting("weighted", FamilyUse::Off).selection;
    let choice = |world| Choice::new(&options, &labels, &sizes, 5, world).unwrap();
    let (alone, ranks) = (choice(1), [choice(2), choice(2)]);
    for epoch in 0..5 {
        let plan = alone.decide(epoch, Shape::single(20), true).unwrap().plan;
        (0..plan.batches()).for_each(|b| tell(&alone, &plan.batch(b).map(|id| id.0).collect::<Vec<_>>()));
        // What all ranks say of their batch norm counts, and if one cannot say who was right, nobody watches that.
        if epoch == 3 {
            alone.unjudged();
            ranks[1].unjudged();
        }
        let said = if epoch >= 2 { Norm::Absent } else { Norm::Unknown };
        alone.norm(said);
        ranks[0].norm(Norm::Absent);
        ranks[1].norm(if epoch >= 2 { said } else { Norm::Weighed });
        let mut both = Vec::new();
        for (rank, choice) in ranks.iter().enumerate() {
            let shape = Shape { rank: rank as u32, world: 2, ..Shape::single(10) };
            let plan = choice.decide(epoch, shape, true).unwrap().plan;
            let ids: Vec<u32> =
                (0..plan.batches()).flat_map(|b| plan.batch(b).map(|id| id.0).collect::<Vec<_>>()).collect();
            tell(choice, &ids);
            both.extend(ids);
        }
        both.sort_unstable();
        both.dedup();
        let mut one: Vec<u32> =
            (0..plan.batches()).flat_map(|b| plan.batch(b).map(|id| id.0).collect::<Vec<_>>()).collect();
        one.sort_unstable();
        assert_eq!(both, one);
        let bold = ranks[0].chosen().unwrap().reason.contains("no batch norm");
        assert_eq!(bold, epoch > 2, "epoch {epoch}");
        let watched = ranks.each_ref().map(|choice| choice.chosen().unwrap().probe.is_some());
        assert_eq!(watched, [(1..4).contains(&epoch); 2], "epoch {epoch}: said by one, known to all");
        let early = ranks[0].decide(epoch + 1, Shape::single(10), true).unwrap_err();
        assert!(early.to_string().contains("not shared"), "{early}");
        let packs: Vec<Vec<u8>> = ranks.iter().map(Choice::pending).collect();
        let state = ranks[1].state();
        ranks.iter().for_each(|choice| choice.merge(&packs).unwrap());
        // A rank that starts again from its state knows what it had heard.
        let again = choice(2);
        again.restore(&state).unwrap();
        assert_eq!(again.pending(), packs[1]);
    }
    let packs = [ranks[0].pending(), vec![1, 2, 3]];
    assert!(ranks[0].merge(&packs).unwrap_err().to_string().contains("rank 1"));
    assert!(ranks[0].merge(&packs[..1]).unwrap_err().to_string().contains("1 ranks"));
    assert!(ranks[0].restore(&[0; 30]).is_err());
}
