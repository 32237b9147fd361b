//! Integration tests of gristmill-node, one binary.

#[cfg(test)]
mod catalog;
