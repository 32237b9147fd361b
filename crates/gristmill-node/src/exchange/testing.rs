//! The conformance suite of transports, for tests in this crate and in others.
//!
//! Every rank calls [`conform`] on its own end, at the same time: threads for a transport within a process, processes for
//! the others. It says what is wrong as an error, so that it runs under any launcher.

use super::Transport;
use crate::{Error, Kind, Result};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Checks one rank's end against what the exchange relies on. All ranks must call it together.
pub fn conform(transport: &mut dyn Transport) -> Result<()> {
    let (rank, world) = (transport.rank(), transport.world());
    ensure(rank < world && world > 1, || format!("rank {rank} of {world} makes no sense"))?;
    ensure(!transport.name().is_empty(), || "it has no name".into())?;
    gathers(transport)?;
    for epoch in 0..2 {
        // The same tags in two epochs: only what lies between them tells the messages apart.
        messages(transport, epoch, &[1, 70_001, 8], false)?;
        quiet(transport)?;
    }
    messages(transport, 7, &[9, 4_096], true)?;
    quiet(transport)?;
    // More than any socket buffers, both ways at once, between all.
    messages(transport, 8, &[3 << 20, 2 << 20], false)?;
    quiet(transport)?;
    ensure(transport.send(world, 0, Bytes::from_static(b"x")).is_err(), || "it sends to nobody".into())?;
    ensure(transport.expect(world, 0, 1).is_err(), || "it expects from nobody".into())?;
    transport.gather(b"done", PATIENCE)?;
    Ok(())
}

/// Words of different lengths, none among them, several times in a row, and by ranks that come late.
fn gathers(transport: &mut dyn Transport) -> Result<()> {
    let words = |rank: u32, round: u32| vec![rank as u8 + 1; ((rank * 977 + round * 31) % 5_000) as usize];
    for round in 0..6 {
        if round == transport.rank() {
            std::thread::sleep(Duration::from_millis(30));
        }
        let said = transport.gather(&words(transport.rank(), round), PATIENCE)?;
        let expected: Vec<Vec<u8>> = (0..transport.world()).map(|rank| words(rank, round)).collect();
        ensure(said == expected, || format!("gathering {round} gave other words than were said"))?;
    }
    let empty = transport.gather(b"", PATIENCE)?;
    ensure(empty.len() == transport.world() as usize && empty.iter().all(Vec::is_empty), || {
        "nobody said anything, but something was heard".into()
    })
}

/// Every rank sends messages of these sizes to every other one. With `late` receives are posted after the messages left.
fn messages(transport: &mut dyn Transport, epoch: u32, sizes: &[usize], late: bool) -> Result<()> {
    let (rank, world) = (transport.rank(), transport.world());
    let content = |from: u32, to: u32, tag: u32| {
        let size = sizes[tag as usize] + (from * 3 + to) as usize;
        let first = (from * 31 + to * 7 + tag * 3 + epoch * 11) as u8;
        (0..size).map(|at| first.wrapping_add(at as u8)).collect::<Vec<u8>>()
    };
    let tags = 0..sizes.len() as u32;
    let peers: Vec<u32> = (0..world).filter(|peer| *peer != rank).collect();
    let expect = |transport: &mut dyn Transport| -> Result<()> {
        for (&peer, tag) in peers.iter().flat_map(|peer| tags.clone().map(move |tag| (peer, tag))) {
            transport.expect(peer, tag, content(peer, rank, tag).len())?;
        }
        Ok(())
    };
    if !late {
        expect(transport)?;
    }
    for &peer in &peers {
        // The last tag first: they may overtake each other.
        for tag in tags.clone().rev() {
            transport.send(peer, tag, content(rank, peer, tag).into())?;
        }
    }
    if late {
        transport.gather(b"all have sent", PATIENCE)?;
        ensure(transport.arrived()?.is_none(), || "a message arrived that nobody expects yet".into())?;
        expect(transport)?;
    }
    let mut missing = peers.len() * sizes.len();
    let until = Instant::now() + PATIENCE;
    while missing > 0 {
        ensure(Instant::now() < until, || format!("still waiting for {:?}", transport.outstanding()))?;
        ensure(transport.outstanding().len() == missing, || {
            format!("{missing} messages are outstanding, but it says {:?}", transport.outstanding())
        })?;
        let Some((from, tag, message)) = transport.arrived()? else {
            transport.sending()?;
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        ensure(message == content(from, rank, tag), || {
            format!("message {tag} of rank {from} is not what was sent")
        })?;
        missing -= 1;
    }
    Ok(())
}

/// Nothing is expected, arrives or is on its way any more, on any rank.
fn quiet(transport: &mut dyn Transport) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while transport.sending()? > 0 {
        ensure(Instant::now() < until, || "messages that everybody has are still being sent".into())?;
        std::thread::sleep(Duration::from_micros(200));
    }
    transport.gather(b"quiet", PATIENCE)?;
    ensure(transport.outstanding().is_empty(), || format!("{:?} are outstanding", transport.outstanding()))?;
    ensure(transport.arrived()?.is_none(), || "a message arrived twice".into())
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(Kind::Io, otherwise()).at("the transport does not conform")) }
}
