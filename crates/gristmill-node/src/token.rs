//! The secret that lets jobs and peers in.
//!
//! It comes from a file or from `GRISTMILL_TOKEN`, never from an argument, which every user of the machine could read.
//! It never crosses the wire: who knows it proves that with the HMAC of a nonce. Nothing prints it.

use crate::config::text;
use crate::wire::{NONCE_BYTES, PROOF_BYTES};
use crate::{Error, Kind, Result};
use ring::hmac;
use std::fmt;
use std::path::Path;

/// The variable that holds it when no file is named.
pub const VARIABLE: &str = "GRISTMILL_TOKEN";
/// The shortest token: less can be guessed.
const BYTES_MIN: usize = 16;
/// The longest one.
const BYTES_MAX: usize = 4_096;

/// A secret that both sides know.
#[derive(Clone)]
pub struct Token {
    key: hmac::Key,
}

impl Token {
    /// A token from its text; white space around it does not count.
    pub fn new(text: &str) -> Result<Token> {
        let text = text.trim();
        if !(BYTES_MIN..=BYTES_MAX).contains(&text.len()) {
            return Err(Error::config(format!(
                "the token has {} characters; it must have {BYTES_MIN} to {BYTES_MAX}",
                text.len()
            ))
            .hint("make one with `openssl rand -hex 32`"));
        }
        Ok(Token { key: hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()) })
    }

    /// The token of a file, or of `GRISTMILL_TOKEN` if no file is named and the variable is set.
    pub fn load(file: Option<&Path>) -> Result<Option<Token>> {
        if let Some(path) = file {
            let text = text::read(path, "token file", BYTES_MAX as u64 + 2)?;
            return Token::new(&text).map(Some).map_err(|e| e.at(path.display()));
        }
        match std::env::var(VARIABLE) {
            Ok(text) if text.is_empty() => Ok(None),
            Ok(text) => Token::new(&text).map(Some).map_err(|e| e.at(VARIABLE)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(_) => Err(Error::new(Kind::Config, format!("{VARIABLE} is not valid UTF-8"))),
        }
    }

    /// The proof that this token is known, for one nonce.
    pub fn prove(&self, nonce: &[u8; NONCE_BYTES]) -> [u8; PROOF_BYTES] {
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(hmac::sign(&self.key, nonce).as_ref());
        proof
    }

    /// Whether a proof holds, in a time that does not depend on where it is wrong.
    pub fn holds(&self, nonce: &[u8; NONCE_BYTES], proof: &[u8; PROOF_BYTES]) -> bool {
        hmac::verify(&self.key, nonce, proof).is_ok()
    }

    /// Whether a text is this token, for HTTP where there is no nonce; in constant time.
    pub fn is(&self, text: &str) -> bool {
        let nonce = [0; NONCE_BYTES];
        let other = hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes());
        hmac::verify(&self.key, &nonce, hmac::sign(&other, &nonce).as_ref()).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_token_and_nonce_only() {
        let (token, other) = (Token::new("a token of some length\n").unwrap(), "another token of it");
        let (nonce, later) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let proof = token.prove(&nonce);
        assert!(token.holds(&nonce, &proof) && !token.holds(&later, &proof));
        assert!(!Token::new(other).unwrap().holds(&nonce, &proof));
        assert!(!token.holds(&nonce, &[0; PROOF_BYTES]));
        assert!(token.is("a token of some length") && !token.is(other) && !token.is(""));
        assert_eq!(format!("{token:?}"), "Token(..)", "nothing prints it");
    }

    #[test]
    fn tokens_come_from_files_and_are_not_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, words) in [("short", "5 characters"), ("", "0 characters")] {
            std::fs::write(&path, text).unwrap();
            let error = Token::load(Some(&path)).unwrap_err();
            assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
        }
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert!(Token::load(Some(&path)).unwrap().unwrap().is("0123456789abcdef"));
        assert!(Token::load(Some(&folder.path().join("none"))).is_err());
    }
}
