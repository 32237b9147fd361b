//! The header in front of every body.
//!
//! The version in a header is the one that brought its verb, so that a message that an older program knows looks to it
//! as it always did. Newer ones are said only to those who know them: each side says in its first frame, in the place
//! of the request number, which version it speaks; programs of version 1 write 0 there and do not look.

use crate::{Error, Result};

/// The version of the wire that this program speaks.
pub const VERSION: u8 = 3;
/// The first version in which a node runs ops.
pub const STAGES_SINCE: u8 = 2;
/// The first version that knows lanes.
pub const LANES_SINCE: u8 = 3;
/// The size of a header.
pub const HEADER_BYTES: usize = 12;

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// Node: a nonce, first of all.
    Greeting = 1,
    /// Who is there.
    Hello,
    /// Node: come in.
    Welcome,
    /// Node: stay out, and why.
    Refused,
    /// Samples are wanted.
    Fetch,
    /// Node: some of them.
    Samples,
    /// A part of the plan of an epoch.
    Announce,
    /// How samples stand.
    Stand,
    /// A part of the catalog is wanted.
    Catalog,
    /// Node: that part.
    CatalogPart,
    /// The report is wanted.
    Report,
    /// Node: the report as JSON.
    ReportText,
    /// Is anybody there.
    Ping,
    /// No more requests.
    Bye,
    /// Node: the request was done.
    Done,
    /// Node: the request failed, and why.
    Failed,
    /// A recipe, of which the node is to run the first ops.
    Prepare,
    /// Node: it will, and with how much.
    Prepared,
    /// Samples are wanted, each at a stage.
    FetchStaged,
    /// Node: some of them, each with the stage it is at.
    StagedSamples,
    /// A lane is wanted.
    WantLane,
    /// Node: here it is.
    LaneIs,
    /// Node: the bytes of the samples in the next frame are in the lane, and where.
    InLane,
}

impl Verb {
    /// All of them, in the order of their numbers.
    pub const ALL: [Verb; 23] = [
        Verb::Greeting,
        Verb::Hello,
        Verb::Welcome,
        Verb::Refused,
        Verb::Fetch,
        Verb::Samples,
        Verb::Announce,
        Verb::Stand,
        Verb::Catalog,
        Verb::CatalogPart,
        Verb::Report,
        Verb::ReportText,
        Verb::Ping,
        Verb::Bye,
        Verb::Done,
        Verb::Failed,
        Verb::Prepare,
        Verb::Prepared,
        Verb::FetchStaged,
        Verb::StagedSamples,
        Verb::WantLane,
        Verb::LaneIs,
        Verb::InLane,
    ];

    /// The version of the wire that brought it.
    pub const fn since(self) -> u8 {
        match self {
            Verb::Prepare | Verb::Prepared | Verb::FetchStaged | Verb::StagedSamples => STAGES_SINCE,
            Verb::WantLane | Verb::LaneIs | Verb::InLane => LANES_SINCE,
            _ => 1,
        }
    }
}

/// The version of the other side, from the number in its first frame: who says nothing knows the first one only. One
/// that is newer than this program speaks this program's, too.
pub fn spoken(said: u32) -> u8 {
    said.clamp(1, VERSION.into()) as u8
}

/// What stands in front of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The length of the body.
    pub bytes: u32,
    /// What it says.
    pub verb: Verb,
    /// Which request it belongs to; 0 where there is none.
    pub request: u32,
}

impl Header {
    /// The header as it goes out.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&self.bytes.to_le_bytes());
        out[4] = self.verb.since();
        out[5] = self.verb as u8;
        out[8..].copy_from_slice(&self.request.to_le_bytes());
        out
    }

    /// Reads a header whose body may be `bytes_max` long.
    pub fn decode(bytes: &[u8; HEADER_BYTES], bytes_max: u32) -> Result<Header> {
        let (length, rest) = (u32::from_le_bytes(first(bytes)), &bytes[4..]);
        let (version, verb, zeros) = (rest[0], rest[1], &rest[2..4]);
        if version == 0 || version > VERSION {
            return Err(Error::config(format!(
                "the other side speaks version {version} of the wire, this one version {VERSION}"
            ))
            .hint("run the same version of gristmill on both sides, and check that the port is a node's"));
        }
        let Some(&known) = Verb::ALL.get((verb as usize).wrapping_sub(1)) else {
            return Err(Error::corrupt(format!("a message of the unknown kind {verb} came over the wire")));
        };
        if version != known.since() {
            return Err(Error::corrupt(format!("{known:?} is not of version {version} of the wire")));
        }
        if zeros != [0, 0] {
            return Err(Error::corrupt("the header of a message has bytes that must be 0 and are not"));
        }
        if length > bytes_max {
            return Err(Error::corrupt(format!(
                "a message of {length} bytes came over the wire; the limit is {bytes_max}"
            )));
        }
        Ok(Header { bytes: length, verb: known, request: u32::from_le_bytes(first(&bytes[8..])) })
    }
}

/// The first four bytes, which the caller knows to be there.
fn first(bytes: &[u8]) -> [u8; 4] {
    [bytes[0], bytes[1], bytes[2], bytes[3]]
}

/// Takes a body apart from its front; what is missing is an error and never a panic.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cut<'a> {
    pub(super) fn new(rest: &'a [u8], what: &'static str) -> Cut<'a> {
        Cut { rest, what }
    }

    pub(super) fn bad(&self, why: &str) -> Error {
        Error::corrupt(format!("a {} message is not valid: {why}", self.what))
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let Some((front, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(self.bad("it is too short"));
        };
        self.rest = rest;
        Ok(front)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((front, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.bad("it is too short"));
        };
        self.rest = rest;
        Ok(*front)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad("a yes or no is neither")),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn f32(&mut self) -> Result<f32> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    /// Text with its length in two bytes in front.
    pub(super) fn text(&mut self, bytes_max: usize) -> Result<&'a str> {
        let length = u16::from_le_bytes(self.array()?) as usize;
        if length > bytes_max {
            return Err(self.bad(&format!("a text has {length} bytes, more than {bytes_max}")));
        }
        let bytes = self.take(length)?;
        str::from_utf8(bytes).map_err(|_| self.bad("a text is not UTF-8"))
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// How many things of `size` bytes are left; a remainder or more than `max` is an error.
    pub(super) fn count(&self, size: usize, max: usize) -> Result<usize> {
        let count = self.rest.len() / size;
        if !self.rest.len().is_multiple_of(size) {
            return Err(self.bad("its list ends in the middle of an entry"));
        }
        if count > max {
            return Err(self.bad(&format!("its list has {count} entries, more than {max}")));
        }
        Ok(count)
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.bad("it is too long")) }
    }
}
