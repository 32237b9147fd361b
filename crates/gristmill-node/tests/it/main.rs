//! Integration tests of gristmill-node, one binary.

mod catalog;
