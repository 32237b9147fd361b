//! What is written is read back; what is not valid is an error, and never a panic or a large allocation.

use super::*;
use crate::catalog::Digest;
use crate::node::{Ask, Served, Standing, Tier};
use crate::split::{Shortfall, Staged, Wish};
use crate::{Error, Kind, Result};
use bytes::{Bytes, BytesMut};
use gristmill_core::SampleId;
use gristmill_ops::Stage;
use proptest::prelude::*;

fn encoded(fill: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    fill(&mut out);
    out
}

/// Every decoder there is, by name: what it says about some bytes.
fn decoders(body: &[u8]) -> Vec<(&'static str, Result<()>)> {
    let length = body.len() as u32;
    vec![
        ("greeting", Greeting::decode(body).map(drop)),
        ("hello", Hello::decode(body).map(drop)),
        ("welcome", Welcome::decode(body).map(drop)),
        ("fetch", Fetch::decode(body).map(drop)),
        ("announce", Announce::decode(body).map(drop)),
        ("stand", Stand::decode(body).map(drop)),
        ("catalog part", CatalogPart::decode(body).map(drop)),
        ("catalog", CatalogPart::decode_from(body).map(drop)),
        ("failure", Failure::decode(body).map(drop)),
        ("samples", SamplesHead::decode(body, length, Rows::Plain).map(drop)),
        ("staged samples", SamplesHead::decode(body, length, Rows::Staged).map(drop)),
        ("prepare", Prepare::decode(body).map(drop)),
        ("prepared", Prepared::decode(body).map(drop)),
        ("staged fetch", FetchStaged::decode(body).map(drop)),
        ("lane", Lane::decode(body).map(drop)),
        ("lane's wish", Lane::decode_wish(body).map(drop)),
        ("lane's place", Lane::decode_place(body).map(drop)),
    ]
}

fn hello(name: &str) -> Hello {
    Hello {
        proof: [7; PROOF_BYTES],
        digest: Some(Digest(1 << 100)),
        name: name.into(),
        job: "j".into(),
        peer: true,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        ids in prop::collection::vec((any::<u32>(), any::<bool>()), 0..200),
        (epoch, split, peer, parts) in (any::<u64>(), any::<u8>(), any::<bool>(), 1..u32::MAX),
        name in "\\PC{0,60}",
        scores in prop::collection::vec((any::<u32>(), -1e9_f32..1e9, 0.0_f32..=1.0), 0..100),
    ) {
        let asks: Vec<Ask> = ids.iter().map(|&(id, cold)| Ask { id: SampleId(id), cold }).collect();
        let fetch = Fetch { epoch, split, peer, asks };
        prop_assert_eq!(Fetch::decode(&encoded(|out| fetch.encode(out))).unwrap(), fetch);
        let order = ids.iter().map(|&(id, _)| id).collect();
        let announce = Announce { epoch, full: peer, part: parts - 1, parts, order };
        prop_assert_eq!(Announce::decode(&encoded(|out| announce.encode(out))).unwrap(), announce);
        let standings: Vec<Standing> =
            scores.iter().map(|&(id, score, wanted)| Standing { id: SampleId(id), score, wanted }).collect();
        let stand = Stand::decode(&encoded(|out| Stand::encode(&standings, out))).unwrap();
        prop_assert_eq!(stand.standings, standings);
        let hello = Hello { digest: peer.then_some(Digest(u128::from(epoch) << 64)), ..hello(&name) };
        let back = Hello::decode(&encoded(|out| hello.encode(out))).unwrap();
        prop_assert!(hello.name.starts_with(&back.name) && back.name.len() + 4 > hello.name.len().min(NAME_BYTES_MAX));
        prop_assert_eq!(Hello { name: hello.name.clone(), ..back }, hello);
        let lane = Lane { fd: parts, bytes: parts / 2, mark: [split; 16] };
        prop_assert_eq!(Lane::decode(&encoded(|out| lane.encode(out))).unwrap(), lane);
        prop_assert_eq!(Lane::decode_wish(&encoded(|out| Lane::encode_wish(parts, out))).unwrap(), parts);
        prop_assert_eq!(Lane::decode_place(&encoded(|out| Lane::encode_place(epoch, out))).unwrap(), epoch);
        let part = CatalogPart { total: u64::MAX, from: epoch / 2, bytes: name.as_bytes() };
        let whole = encoded(|out| part.encode(out));
        prop_assert_eq!(CatalogPart::decode(&whole).unwrap(), part);
    }

    #[test]
    fn recipes_and_wishes_are_read_back(
        wishes in prop::collection::vec((any::<u32>(), 0_u8..14, any::<u32>(), any::<(u64, u64)>()), 0..200),
        (build, recipe) in ("\\PC{0,60}", "\\PC{0,400}"),
        (handle, cores, pixels_max, scratch_bytes_max) in (any::<u32>(), 0.01_f32..1e6, any::<u64>(), any::<u64>()),
    ) {
        let asks = wishes.iter().map(|&(id, stage, bytes_max, (epoch, seed))| {
            let wish = Stage::from_u8(stage).map(|stage| (id / 7, Wish { stage, epoch, seed, bytes_max }));
            WireAsk { ask: Ask { id: SampleId(id), cold: stage % 2 == 1 }, wish }
        });
        let fetch = FetchStaged { asks: asks.collect() };
        let body = encoded(|out| fetch.encode(out));
        prop_assert_eq!(&FetchStaged::decode(&body).unwrap(), &fetch);
        prop_assert!(body.is_empty() || FetchStaged::decode(&body[..body.len() - 1]).is_err());
        let prepare = Prepare { build, pixels_max, scratch_bytes_max, recipe };
        prop_assert_eq!(Prepare::decode(&encoded(|out| prepare.encode(out))).unwrap(), prepare);
        let prepared = Prepared { handle, cores };
        prop_assert_eq!(Prepared::decode(&encoded(|out| prepared.encode(out))).unwrap(), prepared);
    }

    #[test]
    fn tables_of_samples_are_read_back(
        sizes in prop::collection::vec((any::<u32>(), 0_usize..3_000, 0_u8..8, 0_u8..7), 1..ENTRIES_MAX),
        first in any::<u32>(),
        staged in any::<bool>(),
    ) {
        let rows_kind = if staged { Rows::Staged } else { Rows::Plain };
        let results: Vec<(SampleId, Result<Staged>)> = sizes.iter().map(|&(id, size, kind, stage)| {
            let tier = Tier::ALL.get(kind as usize).copied();
            let served = tier.map(|tier| {
                let served = Served { id: SampleId(id), bytes: Bytes::from(vec![1; size]), tier };
                let shortfall = Shortfall::ALL[if staged { stage as usize % 6 } else { 0 }];
                let stage = if staged { Stage::ALL[stage as usize] } else { Stage::Raw };
                Staged { stage, shortfall, cpu_ns: if staged { u64::from(id) * 1_000 } else { 0 }, ..Staged::raw(served) }
            });
            (SampleId(id), served.ok_or_else(|| Error::corrupt("x".repeat(size)).hint("y".repeat(size))))
        }).collect();
        let rows: Vec<_> = results.iter().map(|(id, result)| SamplesHead::entry(*id, result)).collect();
        let head = SamplesHead { first, entries: rows.iter().map(|row| row.0).collect() };
        let table = encoded(|out| head.encode(out, rows_kind));
        prop_assert_eq!(table.len(), SamplesHead::bytes(sizes.len(), rows_kind));
        let body = table.len() as u32 + head.entries.iter().map(|entry| entry.bytes).sum::<u32>();
        prop_assert_eq!(&SamplesHead::decode(&table, body, rows_kind).unwrap(), &head);
        prop_assert!(SamplesHead::decode(&table, body + 1, rows_kind).is_err(), "the table must fit the frame");
        for (entry, sentence) in rows {
            prop_assert_eq!(entry.code == 0, sentence.is_none());
            let Some(sentence) = sentence else { continue };
            let error = Failure::error(entry.code, sentence.as_bytes()).unwrap();
            prop_assert_eq!(error.kind(), Kind::Corrupt);
            prop_assert!(sentence.len() <= SENTENCE_BYTES_MAX);
        }
    }

    #[test]
    fn random_bytes_are_errors_and_never_panics(body in prop::collection::vec(any::<u8>(), 0..300), limit in any::<u32>()) {
        for (name, outcome) in decoders(&body) {
            if let Err(error) = outcome {
                prop_assert!(!error.to_string().is_empty(), "{name}");
            }
        }
        if let Some(Ok(header)) = body.first_chunk().map(|header| Header::decode(header, limit)) {
            prop_assert!(header.bytes <= limit);
        }
    }

    #[test]
    fn a_damaged_message_is_an_error_or_another_message(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        // Cut short anywhere it is an error; with a bit flipped it never panics.
        let whole = encoded(|out| hello("train").encode(out));
        let at = at.index(whole.len());
        prop_assert!(Hello::decode(&whole[..at]).is_err());
        let mut flipped = whole.to_vec();
        flipped[at] ^= 1 << bit;
        prop_assert!(Hello::decode(&flipped).map_or(true, |other| other != hello("train")));
    }
}

#[test]
fn lists_have_limits() {
    let fetch = |asks: usize| {
        let asks = vec![Ask { id: SampleId(0), cold: false }; asks];
        Fetch::decode(&encoded(|out| Fetch { epoch: 0, split: 0, peer: false, asks }.encode(out)))
    };
    assert!(fetch(ASKS_MAX).is_ok() && fetch(ASKS_MAX + 1).is_err());
    let staged = |asks: usize| {
        let asks = vec![WireAsk { ask: Ask { id: SampleId(0), cold: false }, wish: None }; asks];
        FetchStaged::decode(&encoded(|out| FetchStaged { asks }.encode(out)))
    };
    assert!(staged(ASKS_MAX).is_ok() && staged(ASKS_MAX + 1).is_err());
    let prepare = |bytes: usize| {
        let recipe = "x".repeat(bytes);
        let prepare = Prepare { build: String::new(), pixels_max: 1, scratch_bytes_max: 1, recipe };
        Prepare::decode(&encoded(|out| prepare.encode(out)))
    };
    assert!(prepare(RECIPE_BYTES_MAX).is_ok() && prepare(RECIPE_BYTES_MAX + 1).is_err());
    for cores in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(Prepared::decode(&encoded(|out| Prepared { handle: 0, cores }.encode(out))).is_err());
    }
    let announce = |ids: usize| {
        let order = vec![0; ids];
        Announce::decode(&encoded(|out| {
            Announce { epoch: 0, full: true, part: 0, parts: 1, order }.encode(out);
        }))
    };
    assert!(announce(ANNOUNCE_IDS_MAX).is_ok() && announce(ANNOUNCE_IDS_MAX + 1).is_err());
    let nothing = Announce { epoch: 0, full: true, part: 1, parts: 1, order: Vec::new() };
    assert!(Announce::decode(&encoded(|out| nothing.encode(out))).is_err(), "part 1 of 1");
    for (score, wanted) in [(f32::NAN, 0.5), (f32::INFINITY, 0.5), (1.0, 1.5), (1.0, -0.1), (1.0, f32::NAN)] {
        let standing = Standing { id: SampleId(0), score, wanted };
        assert!(Stand::decode(&encoded(|out| Stand::encode(&[standing], out))).is_err(), "{standing:?}");
    }
}

#[test]
fn headers_name_what_is_wrong() {
    let good = Header { bytes: 5, verb: Verb::Samples, request: 9 };
    assert_eq!(Header::decode(&good.encode(), 5).unwrap(), good);
    for (at, byte, words) in [
        (4, 9, "version 9"),
        (5, 0, "kind 0"),
        (5, 24, "kind 24"),
        (5, 17, "not of version 1"),
        (6, 1, "must be 0"),
        (3, 1, "the limit is"),
    ] {
        let mut bytes = good.encode();
        bytes[at] = byte;
        let error = Header::decode(&bytes, 1_000).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // Programs of version 1 know the first sixteen verbs, and find them as they always were; those of version 2 know 20.
    for verb in Verb::ALL {
        let byte = Header { bytes: 0, verb, request: 0 }.encode()[4];
        assert_eq!(byte, [1, 2, 3][usize::from(verb as u8 > 16) + usize::from(verb as u8 > 20)], "{verb:?}");
    }
    assert_eq!([0, 1, 2, 3, 9].map(spoken), [1, 1, 2, 3, 3]);
    for (number, verb) in Verb::ALL.iter().enumerate() {
        assert_eq!(*verb as usize, number + 1);
    }
}

#[test]
fn errors_keep_their_kind_sentence_and_hint() {
    for kind in [Kind::Config, Kind::NotFound, Kind::Corrupt, Kind::Unavailable, Kind::Io, Kind::Stopped] {
        let error = Error::new(kind, "it is broken").hint("mend it");
        let back = Failure::decode(&encoded(|out| Failure::encode(&error, out))).unwrap();
        assert_eq!(
            (back.kind(), back.to_string().as_str(), back.remedy()),
            (kind, "it is broken", Some("mend it"))
        );
    }
    assert!(
        Failure::decode(&[0, b'x']).is_err()
            && Failure::decode(&[7]).is_err()
            && Failure::decode(&[]).is_err()
    );
    let long = Error::config("é".repeat(5_000));
    assert!(Failure::text(&long).len() <= SENTENCE_BYTES_MAX);
}
