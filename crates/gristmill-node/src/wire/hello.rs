//! The handshake: greeting, hello, welcome.
//!
//! The token itself never crosses the wire. The node greets with a nonce, and the hello carries the HMAC of that nonce
//! under the token, so that a listener on an unencrypted link learns nothing it could use again.

use super::NAME_BYTES_MAX;
use super::frame::Cut;
use crate::Result;
use crate::catalog::Digest;
use bytes::{BufMut, BytesMut};

/// The size of a nonce.
pub const NONCE_BYTES: usize = 32;
/// The size of a proof: HMAC-SHA256.
pub const PROOF_BYTES: usize = 32;
/// What every greeting begins with.
const MAGIC: [u8; 8] = *b"gristmil";

/// The node's first words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Never used before.
    pub nonce: [u8; NONCE_BYTES],
}

impl Greeting {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&MAGIC);
        out.put_slice(&self.nonce);
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Greeting> {
        let mut cut = Cut::new(body, "greeting");
        if cut.array()? != MAGIC {
            return Err(cut.bad("it is not a node's"));
        }
        let nonce = cut.array()?;
        cut.end()?;
        Ok(Greeting { nonce })
    }
}

/// Who is there, and what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// HMAC of the nonce under the token; zeros without a token.
    pub proof: [u8; PROOF_BYTES],
    /// The data set that is expected; `None` takes any.
    pub digest: Option<Digest>,
    /// The name under which the node serves it; "" if the node has only one.
    pub name: String,
    /// The name of the job.
    pub job: String,
    /// A node beside this one, or somebody who only looks: not a job.
    pub peer: bool,
}

impl Hello {
    /// Writes the body; names are cut at their limit.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.proof);
        out.put_u8(self.digest.is_some().into());
        out.put_u128_le(self.digest.map_or(0, |digest| digest.0));
        out.put_u8(self.peer.into());
        put_text(out, &self.name, NAME_BYTES_MAX);
        put_text(out, &self.job, NAME_BYTES_MAX);
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Hello> {
        let mut cut = Cut::new(body, "hello");
        let proof = cut.array()?;
        let some = cut.flag()?;
        let digest = Digest(u128::from_le_bytes(cut.array()?));
        let peer = cut.flag()?;
        let name = cut.text(NAME_BYTES_MAX)?.to_string();
        let job = cut.text(NAME_BYTES_MAX)?.to_string();
        cut.end()?;
        Ok(Hello { proof, digest: some.then_some(digest), name, job, peer })
    }
}

/// The node's answer to a hello that it likes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The data set.
    pub digest: Digest,
    /// How many samples it has.
    pub samples: u32,
    /// The size of its catalog's file.
    pub catalog_bytes: u64,
    /// The number of the job; 0 for a peer.
    pub job: u32,
    /// The longest answer that will be sent.
    pub answer_bytes_max: u32,
    /// After how long without a word the node closes the connection.
    pub idle_ms_max: u64,
    /// The name under which the data set is served.
    pub name: String,
}

impl Welcome {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u128_le(self.digest.0);
        out.put_u32_le(self.samples);
        out.put_u64_le(self.catalog_bytes);
        out.put_u32_le(self.job);
        out.put_u32_le(self.answer_bytes_max);
        out.put_u64_le(self.idle_ms_max);
        put_text(out, &self.name, NAME_BYTES_MAX);
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Welcome> {
        let mut cut = Cut::new(body, "welcome");
        let welcome = Welcome {
            digest: Digest(u128::from_le_bytes(cut.array()?)),
            samples: cut.u32()?,
            catalog_bytes: cut.u64()?,
            job: cut.u32()?,
            answer_bytes_max: cut.u32()?,
            idle_ms_max: cut.u64()?,
            name: cut.text(NAME_BYTES_MAX)?.to_string(),
        };
        cut.end()?;
        Ok(welcome)
    }
}

/// Text with its length in two bytes in front, cut where a character ends.
pub(super) fn put_text(out: &mut BytesMut, text: &str, bytes_max: usize) {
    let text = clip(text, bytes_max);
    out.put_u16_le(text.len() as u16);
    out.put_slice(text.as_bytes());
}

/// At most so many bytes of a text, cut where a character ends.
pub(super) fn clip(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
