//! The same selection on every platform: what each way chose once, it chooses for ever.
//!
//! Everything here is made of additions, multiplications, divisions, square roots and the crate's own logarithm, which have
//! the same bits everywhere. When a rule is changed on purpose, the number that the failing test shows is the new one.

use super::tests::{facts, selector};
use super::*;
use crate::math::log2;
use crate::plan::Shape;
use crate::rng::{key, mix};

/// A model that learns, without any function whose last bit a platform may choose.
fn learned(id: u32, epoch: u64) -> f32 {
    let unit = |parts: &[u64]| (key(parts) >> 40) as f32 / (1 << 24) as f32;
    let (hard, wobble) = (unit(&[id.into()]), unit(&[id.into(), epoch]));
    1.0 - 0.98 * hard * hard * (0.5 + 0.5 * wobble) / (1.0 + 0.25 * epoch as f32)
}

/// Ten epochs of 1,500 samples in five classes, in one number: who was chosen, with what weight, in batches of what size.
fn course(name: &str, norm: Norm) -> u64 {
    let mut selector = selector(name, &[], facts((0..1_500).map(|id| id * 7 % 5).collect(), 11, Some(12)));
    selector.norm(norm);
    let mut times = ReadTimes::default();
    [(500, 0.002), (1_100, 0.003)].iter().for_each(|&(bytes, s)| times.note(bytes, s));
    let mut sum = 0;
    for epoch in 0..10 {
        let readings = Readings { io_bound: epoch % 4 > 1, times, steps: 20 };
        let mut ids = {
            let chosen = selector.begin(epoch, &readings).unwrap();
            let weights = chosen.weights.iter().map(|weight| u64::from(weight.to_bits()));
            let all = chosen.ids.iter().map(|&id| u64::from(id)).chain(weights);
            let batch = chosen.shape(Shape::single(64)).batch;
            let cut = u64::from(chosen.batch_share.to_bits()) << 32 | u64::from(batch);
            sum = all.fold(mix(sum ^ cut), |sum, word| mix(sum ^ word));
            chosen.ids.clone()
        };
        ids.dedup();
        let p_true: Vec<f32> = ids.iter().map(|&id| learned(id, epoch)).collect();
        let p_rival: Vec<f32> = p_true.iter().map(|p| 0.9 * (1.0 - p)).collect();
        let loss: Vec<f32> = p_true.iter().map(|&p| -log2(p.into()) as f32).collect();
        let kept = selector.keep(&ids, &loss).unwrap();
        sum = kept.iter().fold(sum, |sum, &kept| mix(sum ^ u64::from(kept)));
        let said = Feedback { ids: &ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
        selector.feedback(&said).unwrap();
    }
    sum
}

#[test]
fn every_way_chooses_what_it_always_chose() {
    let mut found = Selection::NAMES.map(|name| (name, course(name, Norm::Unknown))).to_vec();
    // Bounds of its own for each kind of model.
    found.push(("weighted, no batch norm", course("weighted", Norm::Absent)));
    found.push(("weighted, batch norm by weights", course("weighted", Norm::Weighed)));
    let expected = vec![
        ("uniform", 0x63de_9b5e_75a9_5d48),
        ("bucket", 0xa2ce_4174_30de_0fce),
        ("online", 0xf6e5_f45f_fae9_f11e),
        ("active-bias", 0x679d_542e_73b0_e3fc),
        ("biggest-loser", 0x5fec_8738_88a6_6a2a),
        ("proxy", 0xfd27_bac9_ddb0_997e),
        ("iis", 0xa2a3_2dd5_aef6_8712),
        ("infobatch", 0x43d7_513f_a6f7_69a4),
        ("weighted", 0x91aa_de4b_4c12_c7fd),
        ("weighted, no batch norm", 0xd051_ca01_e4bd_a084),
        ("weighted, batch norm by weights", 0x0c04_9c9b_cdb4_c8bb),
    ];
    let hex = |ways: Vec<(&str, u64)>| -> Vec<String> {
        ways.into_iter().map(|(name, sum)| format!("{name} {sum:#018x}")).collect()
    };
    assert_eq!(hex(found), hex(expected));
}
