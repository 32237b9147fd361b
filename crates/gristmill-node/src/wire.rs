//! The wire: how a node and those who ask it speak, as pure functions over bytes.
//!
//! A connection carries frames. A frame is a header of 12 bytes (length of the body, version, verb, request number) and
//! a body; numbers are little endian. The node greets with a nonce, the other side says hello with a proof that it
//! knows the token, and is welcomed or refused with a sentence. From then on requests may overlap and answers come in
//! any order; the request number ties them together. A large fetch is answered by several `Samples` frames, so neither
//! side ever holds more than a part of it.
//!
//! ```text
//!   node   -> Greeting {nonce}
//!   client -> Hello {proof, digest, data set, job, peer}   node -> Welcome {...} | Refused {sentence}
//!   client -> Fetch {epoch, split, peer, [(id, cold)]}     node -> Samples {first, [(id, tier, bytes | error)]} ...
//!   client -> Announce {epoch, full, part of parts, ids}   node -> Done | Failed, after the last part
//!   client -> Stand {[(id, score, wanted)]}                node -> Done | Failed
//!   client -> Catalog {from}                               node -> CatalogPart {total, from, bytes}
//!   client -> Report                                       node -> ReportText {JSON}
//!   client -> Ping                                         node -> Done
//!   client -> Prepare {build, recipe, limits}              node -> Prepared {handle, cores} | Failed
//!   client -> FetchStaged {[(id, cold, handle, stage, …)]} node -> StagedSamples {first, [(id, stage, CPU time, …)]} ...
//!   client -> WantLane {bytes}                             node -> LaneIs {fd, bytes, mark} | Failed
//!                                                          node -> InLane {position}, then a table without its bytes
//!   either -> Bye                                          no more requests; what is in flight is finished
//! ```
//!
//! Every length is checked against a limit before anything is allocated. Deliberately not here: sockets, time, and
//! paths. The wire speaks sample ids.

mod frame;
mod hello;
mod lane;
mod message;
mod samples;
mod staged;
#[cfg(test)]
mod tests;

pub use frame::{HEADER_BYTES, Header, LANES_SINCE, STAGES_SINCE, VERSION, Verb, spoken};
pub use hello::{Greeting, Hello, NONCE_BYTES, PROOF_BYTES, Welcome};
pub use lane::Lane;
pub use message::{Announce, CatalogPart, Failure, Fetch, Stand, end_frame, put_frame};
pub use samples::{Entry, Rows, SamplesHead};
pub use staged::{FetchStaged, Prepare, Prepared, WireAsk};

/// The longest body that a node takes.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// The most asks in one `Fetch`.
pub const ASKS_MAX: usize = 4_096;
/// The most ids in one part of an announcement.
pub const ANNOUNCE_IDS_MAX: usize = 1 << 16;
/// The most samples in one `Stand`.
pub const STANDINGS_MAX: usize = 1 << 16;
/// The most samples in one `Samples` frame.
pub const ENTRIES_MAX: usize = 64;
/// The longest sentence of an error or a refusal.
pub const SENTENCE_BYTES_MAX: usize = 2_048;
/// The longest name of a job or a data set.
pub const NAME_BYTES_MAX: usize = 200;
/// The most of a catalog in one part.
pub const CATALOG_PART_BYTES: usize = 1 << 20;
/// The longest recipe.
pub const RECIPE_BYTES_MAX: usize = 64 << 10;
