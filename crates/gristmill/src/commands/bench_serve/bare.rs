//! The ceiling: a process that sends as many bytes as it is asked for, and does nothing else.
//!
//! It sends out of as much memory as the other servers hold, since bytes that lie in the processor's cache are sent
//! faster than any data set could be.

use crate::output::{json, line};
use anyhow::{Context, Result};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

/// How much memory it sends out of.
const MEMORY_BYTES: usize = 96 << 20;
/// The most that it is asked for at once.
pub(super) const ASK_BYTES_MAX: usize = 16 << 20;

/// Serves until it is killed.
pub(super) fn serve() -> Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    json(&json!({"tcp": listener.local_addr()?.to_string()}))?;
    let memory: &'static [u8] = vec![0xa5_u8; MEMORY_BYTES].leak();
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            // A client that is gone is served no more.
            let _ = answer(stream, memory);
        });
    }
    line("")?;
    Ok(ExitCode::SUCCESS)
}

/// Four bytes say how many are wanted.
fn answer(mut stream: TcpStream, memory: &[u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut ask, mut at) = ([0; 4], 0);
    loop {
        stream.read_exact(&mut ask)?;
        let bytes = (u32::from_le_bytes(ask) as usize).min(ASK_BYTES_MAX);
        if at + bytes > memory.len() {
            at = 0;
        }
        stream.write_all(&memory[at..at + bytes])?;
        at += bytes;
    }
}
