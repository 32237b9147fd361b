//! One error type, sorted by what the caller can do about it.
//!
//! A message is one sentence without a full stop that names what went wrong and where; a hint, where there is
//! one, says what to do. Misses, throttling and retries that succeeded are values, never errors.

use std::fmt;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Change what was asked for: an argument, a config value, a source that is not a data set.
    Config,
    /// Name something that exists.
    NotFound,
    /// Mend or replace the data: it is damaged, or not what the catalog says.
    Corrupt,
    /// Try again later: the store did not answer, or not in time.
    Unavailable,
    /// Look at the machine: permissions, full disk, a failing device.
    Io,
    /// Nothing: the work was told to stop.
    Stopped,
}

/// An error with its sentence, its remedy and its cause.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind with its one sentence.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None, source: None }
    }

    /// Shorthand for [`Kind::Config`].
    pub fn config(message: impl Into<String>) -> Error {
        Error::new(Kind::Config, message)
    }

    /// Shorthand for [`Kind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(Kind::Corrupt, message)
    }

    /// An operating-system error while doing `what` to the thing named `whom`.
    pub fn io(what: &str, whom: impl fmt::Display, source: std::io::Error) -> Error {
        use std::io::ErrorKind as K;
        let kind = match source.kind() {
            K::NotFound | K::NotADirectory => Kind::NotFound,
            K::TimedOut | K::ConnectionRefused | K::ConnectionReset | K::ConnectionAborted => {
                Kind::Unavailable
            }
            _ => Kind::Io,
        };
        let hint = match source.kind() {
            K::StorageFull => Some("free some space or choose another place"),
            K::PermissionDenied => Some("check the owner and permissions"),
            _ => None,
        };
        let mut error = Error::new(kind, format!("cannot {what} {whom}: {}", plain(&source)));
        error.hint = hint.map(Into::into);
        error.source = Some(Box::new(source));
        error
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Keeps the cause, for `{:?}` and for callers that walk the chain.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }

    /// Puts `place: ` in front of the sentence, to say where in a larger whole it happened.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Error {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same error for another who waited for the same thing; its cause stays with the first.
    pub(crate) fn again(&self) -> Error {
        Error { kind: self.kind, message: self.message.clone(), hint: self.hint.clone(), source: None }
    }

    /// What can be done about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What to do about it, in words.
    pub fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether it is about one sample, so that a user may choose to go on without it.
    pub fn is_bad_sample(&self) -> bool {
        let denied = |source: &(dyn std::error::Error + Send + Sync + 'static)| {
            let io = source.downcast_ref::<std::io::Error>();
            io.is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied)
        };
        matches!(self.kind, Kind::Corrupt | Kind::NotFound) || self.source.as_deref().is_some_and(denied)
    }

    /// Whether trying the same again may work.
    pub fn is_retryable(&self) -> bool {
        self.kind == Kind::Unavailable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<gristmill_core::Invalid> for Error {
    fn from(invalid: gristmill_core::Invalid) -> Error {
        Error::config(invalid.0)
    }
}

/// The system's words for an error without the "(os error 2)" that only a programmer can use.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let cut = text.find(" (os error").unwrap_or(text.len());
    let mut words = text[..cut].to_string();
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    words
}
