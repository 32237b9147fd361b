//! One connection: the handshake, then requests in and answers out until either side has enough.

use super::gate::Slot;
use super::outgoing::{self, Answer};
use super::requests::Requests;
use super::{Hosted, State};
use crate::node::JobId;
use crate::wire::{
    Failure, Greeting, HEADER_BYTES, Header, Hello, NONCE_BYTES, REQUEST_BYTES_MAX, Verb, Welcome,
};
use crate::wire::{end_frame, put_frame};
use crate::{Error, Kind, Result};
use bytes::BytesMut;
use ring::rand::SecureRandom;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Answers that may wait to be written; what they hold is booked elsewhere.
const ANSWERS_MAX: usize = 64;
/// The longest hello.
const HELLO_BYTES_MAX: u32 = 1_024;
/// How long a refusal may take to be read.
const REFUSAL_PAUSE: Duration = Duration::from_millis(500);

/// Who knocks.
pub(super) enum Peer {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<(TcpStream, TlsAcceptor)>),
}

/// Serves one connection on a task of its own.
pub(super) fn start(state: Arc<State>, peer: Peer) {
    let Some(slot) = state.gate.enter() else {
        state.counts.refused.fetch_add(1, Relaxed);
        let most = state.options.connections_max;
        let error = Error::new(Kind::Unavailable, format!("the node has {most} connections, its limit"))
            .hint("try again later, or raise serve.connections_max");
        turn_away(peer, &error);
        return;
    };
    tokio::spawn(async move {
        match peer {
            Peer::Tcp(stream) => {
                let (from, to) = stream.into_split();
                serve(&state, slot, from, to, false).await;
            }
            Peer::Unix(stream) => {
                let (from, to) = stream.into_split();
                serve(&state, slot, from, to, true).await;
            }
            Peer::Tls(both) => {
                let (stream, tls) = *both;
                let limit = Duration::from_millis(state.options.handshake_ms_max);
                let accepted = tokio::select! {
                    accepted = timeout(limit, tls.accept(stream)) => accepted,
                    () = slot.evicted() => return,
                };
                if let Ok(Ok(stream)) = accepted {
                    let (from, to) = tokio::io::split(stream);
                    serve(&state, slot, from, to, false).await;
                } else {
                    state.counts.cut_off.fetch_add(1, Relaxed);
                }
            }
        }
    });
}

/// Says why, if that can be said without waiting.
fn turn_away(peer: Peer, error: &Error) {
    let mut out = BytesMut::new();
    let start = put_frame(&mut out, Verb::Refused, 0);
    Failure::encode(error, &mut out);
    end_frame(&mut out, start, 0);
    // A client that does not hear it finds the connection closed, which says the same.
    let _ = match peer {
        Peer::Tcp(stream) => stream.try_write(&out),
        Peer::Unix(stream) => stream.try_write(&out),
        Peer::Tls(_) => Ok(0),
    };
}

/// Takes a job out again however its connection ends.
struct Joined<'a> {
    hosted: &'a Hosted,
    job: Option<JobId>,
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job {
            self.hosted.node.leave(job);
        }
    }
}

async fn serve<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    state: &Arc<State>,
    slot: Slot,
    mut from: R,
    mut to: W,
    same_machine: bool,
) {
    let limit = Duration::from_millis(state.options.handshake_ms_max);
    let shaken = tokio::select! {
        shaken = timeout(limit, shake(state, &mut from, &mut to)) => shaken,
        () = slot.evicted() => return,
    };
    let (joined, welcome) = match shaken {
        Ok(Ok(Ok(in_now))) => in_now,
        Ok(Ok(Err(refused))) => {
            state.counts.refused.fetch_add(1, Relaxed);
            refuse(&mut from, &mut to, &refused).await;
            return;
        }
        // Silent for too long, or gone.
        Ok(Err(_)) | Err(_) => {
            state.counts.cut_off.fetch_add(1, Relaxed);
            return;
        }
    };
    slot.stay();
    if timeout(limit, to.write_all(&welcome)).await.is_ok_and(|written| written.is_ok()) {
        talk(state, &joined, from, to, same_machine).await;
    }
}

/// Requests in, answers out.
async fn talk<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    state: &Arc<State>,
    joined: &Joined<'_>,
    mut from: R,
    mut to: W,
    same_machine: bool,
) {
    let (answers, mut queue) = mpsc::channel(ANSWERS_MAX);
    let limit = Duration::from_millis(state.options.write_ms_max);
    let mut requests = Requests::new(state, joined.hosted, joined.job, answers, same_machine);
    let ended = {
        let mut writing = pin!(outgoing::write(&mut to, &mut queue, limit));
        let ended = tokio::select! {
            biased;
            ended = requests.take(&mut from) => ended,
            _ = &mut writing => {
                // It does not read, or is gone.
                state.counts.cut_off.fetch_add(1, Relaxed);
                return;
            }
        };
        if ended.is_ok() {
            // Nothing new is taken; what is in flight goes out.
            requests.finish();
            let _ = writing.await;
        }
        ended
    };
    match ended {
        Ok(()) => {
            let bye = Answer::new(Verb::Bye, 0, |_| {});
            let (answers, mut queue) = mpsc::channel(1);
            let _ = answers.try_send(bye);
            drop(answers);
            let _ = outgoing::write(&mut to, &mut queue, limit).await;
        }
        // Gone by itself.
        Err(error) if error.kind() == Kind::Stopped => {}
        Err(error) => {
            state.counts.cut_off.fetch_add(1, Relaxed);
            refuse(&mut from, &mut to, &error).await;
        }
    }
}

/// Says why, and waits a moment so that it is heard before the connection closes.
async fn refuse<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(from: &mut R, to: &mut W, error: &Error) {
    let (answers, mut queue) = mpsc::channel(1);
    let _ = answers.try_send(Answer::refusal(error));
    drop(answers);
    let said = async {
        outgoing::write(to, &mut queue, REFUSAL_PAUSE).await?;
        to.shutdown().await?;
        // Closing with unread bytes would make the system throw the sentence away.
        let mut ignored = [0; 4_096];
        while from.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(REFUSAL_PAUSE, said).await;
}

/// The handshake: outer error for a connection that is gone, inner one for a refusal with its sentence.
async fn shake<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    state: &'a Arc<State>,
    from: &mut R,
    to: &mut W,
) -> io::Result<Result<(Joined<'a>, BytesMut)>> {
    let mut nonce = [0; NONCE_BYTES];
    if ring::rand::SystemRandom::new().fill(&mut nonce).is_err() {
        return Ok(Err(Error::new(Kind::Unavailable, "the system has no random numbers")));
    }
    let mut out = BytesMut::new();
    // Where a request number would stand is the version that this node speaks; the first one said nothing there.
    let version = if state.options.wire_version > 1 { state.options.wire_version.into() } else { 0 };
    let start = put_frame(&mut out, Verb::Greeting, version);
    Greeting { nonce }.encode(&mut out);
    end_frame(&mut out, start, 0);
    to.write_all(&out).await?;
    to.flush().await?;
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header).await?;
    let header = match Header::decode(&header, HELLO_BYTES_MAX) {
        Ok(header) if header.verb == Verb::Hello => header,
        Ok(_) => return Ok(Err(Error::corrupt("the first message must be a hello"))),
        Err(error) => return Ok(Err(error)),
    };
    let mut body = vec![0; header.bytes as usize];
    from.read_exact(&mut body).await?;
    Ok(Hello::decode(&body).and_then(|hello| enter(state, &nonce, &hello)))
}

/// Whether a hello is good enough, and the welcome if it is.
fn enter<'a>(
    state: &'a Arc<State>,
    nonce: &[u8; NONCE_BYTES],
    hello: &Hello,
) -> Result<(Joined<'a>, BytesMut)> {
    if state.token.as_ref().is_some_and(|token| !token.holds(nonce, &hello.proof)) {
        return Err(Error::config("the token is missing or wrong")
            .hint("set GRISTMILL_TOKEN or the token file to what the node was started with"));
    }
    if *state.draining.borrow() {
        return Err(Error::new(Kind::Unavailable, "the node is shutting down"));
    }
    let called = state.hosted.iter().find(|hosted| hosted.name == hello.name);
    let only = (hello.name.is_empty() && state.hosted.len() == 1).then(|| &state.hosted[0]);
    let Some(hosted) = called.or(only) else {
        let names: Vec<&str> = state.hosted.iter().map(|hosted| hosted.name.as_str()).collect();
        return Err(Error::config(format!("the node has no data set {:?}", hello.name))
            .hint(format!("it has {}", names.join(", "))));
    };
    let catalog = hosted.node.set().catalog();
    if let Some(digest) = hello.digest.filter(|digest| *digest != catalog.digest()) {
        return Err(Error::config(format!(
            "the node serves another data set as {}: its digest is {}, not {digest}",
            hosted.name,
            catalog.digest()
        ))
        .hint("use a catalog of the same data on both sides"));
    }
    let job = if hello.peer { None } else { Some(hosted.node.join(&hello.job)?) };
    let welcome = Welcome {
        digest: catalog.digest(),
        samples: catalog.len(),
        catalog_bytes: catalog.file_bytes(),
        job: job.map_or(0, |job| job.0),
        answer_bytes_max: state.options.answer_bytes_max(),
        idle_ms_max: state.options.idle_ms_max,
        name: hosted.name.clone(),
    };
    let mut out = BytesMut::new();
    let start = put_frame(&mut out, Verb::Welcome, 0);
    welcome.encode(&mut out);
    end_frame(&mut out, start, 0);
    Ok((Joined { hosted, job }, out))
}

/// The most that one message may hold.
pub(super) const MESSAGE_BYTES_MAX: u32 = REQUEST_BYTES_MAX;
