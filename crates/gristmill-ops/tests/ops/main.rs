//! The crate from outside: pictures are made here, run through recipes, and compared with plain models.
//!
//! One program for all of it. `making` makes pictures and recipes; each other module is one promise.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod bad_input;
mod crop_decode;
mod drawing;
mod fuzz;
mod making;
mod models;
mod odd;
mod real;
mod stages;
mod validation;
