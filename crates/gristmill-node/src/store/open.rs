//! From a URL to a store.
//!
//! A plain path or `file://` is a folder. `s3://`, `gs://`, `az://` and `abfs://` are a bucket with a prefix, written
//! as their own tools write it: what follows the bucket is a name, not percent-encoded. `http://` and `https://` are
//! web addresses, so percent-encoded. Around the store come the wrappers that the options ask for.
//!
//! Deliberately not here: whether a URL names a folder or one file. The catalog knows; [`split`] is for files.

use super::{
    FaultOptions, Faulty, LocalStore, ObjectStore, RetryOptions, Retrying, Store, ThrottleOptions, Throttled,
};
use crate::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

/// How to reach a store and what to do when it does not answer.
#[derive(Clone, Default)]
pub struct StoreOptions {
    /// How often and how long to try.
    pub retry: RetryOptions,
    /// Makes the store slow, for tests, demos and benchmarks.
    pub throttle: Option<ThrottleOptions>,
    /// Makes the store fail, for tests and benchmarks.
    pub faults: Option<FaultOptions>,
    /// Settings of the object store by the names of their environment variables, such as `AWS_ENDPOINT_URL`.
    /// They come before the environment.
    pub object: Vec<(String, String)>,
}

/// Values of `object` may be secrets, so only their names are shown.
impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object: Vec<&str> = self.object.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("StoreOptions")
            .field("retry", &self.retry)
            .field("throttle", &self.throttle)
            .field("faults", &self.faults)
            .field("object", &object)
            .finish()
    }
}

/// Opens the store at `url`. Nothing is sent yet: a bucket that does not exist shows at the first call.
pub fn open(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let mut store: Arc<dyn Store> = match parse(url)? {
        Place::Folder(path) => Arc::new(LocalStore::new(path)?),
        Place::Bucket(place) => Arc::new(ObjectStore::new(&place, &options.object)?),
    };
    if let Some(faults) = &options.faults {
        store = Arc::new(Faulty::new(store, faults.clone())?);
    }
    if let Some(throttle) = &options.throttle {
        store = Arc::new(Throttled::new(store, throttle.clone())?);
    }
    Ok(Arc::new(Retrying::new(store, options.retry.clone())?))
}

/// Splits a URL that names one object into the URL of its folder and the object's name in it.
pub fn split(url: &str) -> Result<(String, String)> {
    let nameless = || Error::config(format!("{} names no file", shown(url)));
    match parse(url)? {
        Place::Folder(path) => {
            let name = path.file_name().ok_or_else(nameless)?;
            let name = name.to_str().ok_or_else(|| Error::config(format!("{} is not UTF-8", shown(url))))?;
            if url.ends_with('/') {
                return Err(nameless());
            }
            let root = match path.parent().map(|parent| parent.to_string_lossy().into_owned()) {
                Some(parent) if !parent.is_empty() => parent,
                _ => ".".to_string(),
            };
            Ok((root, name.to_string()))
        }
        Place::Bucket(Bucket { prefix, .. }) => {
            if prefix.is_empty() || url.ends_with('/') {
                return Err(nameless());
            }
            // Cut the text as the user wrote it, so that a web address stays percent-encoded.
            let root = url.rsplit_once('/').map_or("", |(root, _)| root);
            let name = prefix.rsplit_once('/').map_or(prefix.as_str(), |(_, name)| name);
            Ok((root.to_string(), name.to_string()))
        }
    }
}

enum Place {
    Folder(PathBuf),
    Bucket(Bucket),
}

/// An object store's address in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// In small letters.
    pub(crate) scheme: String,
    /// Bucket, container (perhaps with its account), or web host with its port.
    pub(crate) host: String,
    /// Where the store's root lies in it; as names, without encoding.
    pub(crate) prefix: String,
}

impl Bucket {
    /// The address as one line for people.
    pub(crate) fn url(&self) -> String {
        let Bucket { scheme, host, prefix } = self;
        let slash = if prefix.is_empty() { "" } else { "/" };
        format!("{scheme}://{host}{slash}{prefix}")
    }
}

fn parse(url: &str) -> Result<Place> {
    if url.is_empty() {
        return Err(Error::config("the URL of the data is empty").hint("give a folder or a URL"));
    }
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(Place::Folder(url.into())) };
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "file" => {
            let path = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
            path.map(Place::Folder).ok_or_else(|| {
                Error::config(format!("{} names no file of this machine", shown(url)))
                    .hint("write file:///folder, or the plain path")
            })
        }
        "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" => bucket(scheme, url, rest).map(Place::Bucket),
        "http" | "https" => web(scheme, url).map(Place::Bucket),
        "grist" => Err(Error::config("grist:// (data from another node) is not available in this version")
            .hint("give the folder or the object store behind that node")),
        _ => Err(Error::config(format!("{scheme}:// is not a kind of store that Gristmill knows"))
            .hint("known are a plain path, file://, s3://, gs://, az://, abfs://, http:// and https://")),
    }
}

fn bucket(scheme: String, url: &str, rest: &str) -> Result<Bucket> {
    let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let wrong = |why: &str| Err(Error::config(format!("{} {why}", shown(url))));
    let azure = scheme.starts_with('a');
    if host.is_empty() {
        return wrong("names no bucket");
    }
    if host.contains(':') || (host.contains('@') && !azure) {
        return wrong("has more than a bucket's name before the path")
            .map_err(|error| error.hint("give keys and endpoints in the environment, not in the URL"));
    }
    let prefix = prefix.trim_end_matches('/').to_string();
    if !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return wrong("has an empty part, . or .. in its path");
    }
    Ok(Bucket { scheme, host: host.to_string(), prefix })
}

fn web(scheme: String, url: &str) -> Result<Bucket> {
    let wrong = |why: &str| Error::config(format!("{} {why}", shown(url)));
    let parsed = Url::parse(url).map_err(|e| wrong("is not a web address").because(e))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(wrong("had a user name or password in it, which is not supported")
            .hint("use a server that needs none, or an object store's own URL"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(wrong("had a query (?) or a fragment (#) after it, which cannot name a folder or file")
            .hint("write ? as %3F and # as %23 if they belong to the name"));
    }
    let decoded = object_store::path::Path::from_url_path(parsed.path().trim_end_matches('/'));
    let prefix = decoded.map_err(|_| wrong("has an empty part or no valid UTF-8 in its path"))?.to_string();
    let host = &parsed[url::Position::BeforeHost..url::Position::AfterPort];
    Ok(Bucket { scheme, host: host.to_string(), prefix })
}

/// A URL fit for messages: without password, query and fragment.
fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) =
        rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> String {
        match parse(url) {
            Ok(Place::Folder(path)) => format!("folder {}", path.display()),
            Ok(Place::Bucket(Bucket { scheme, host, prefix })) => format!("{scheme} | {host} | {prefix}"),
            Err(error) => format!("{error} ({})", error.remedy().unwrap_or_default()),
        }
    }

    #[test]
    fn urls() {
        for (url, want) in [
            ("data/train", "folder data/train"),
            ("/data with space/%20", "folder /data with space/%20"),
            ("file:///data/a%20b", "folder /data/a b"),
            ("file://localhost/data", "folder /data"),
            ("s3://b", "s3 | b | "),
            ("S3://b/", "s3 | b | "),
            ("s3://my-b/a b/50%/#1/x?y/", "s3 | my-b | a b/50%/#1/x?y"),
            ("gs://b/p", "gs | b | p"),
            ("az://box/p", "az | box | p"),
            ("abfs://box@account.dfs.core.windows.net/p/q", "abfs | box@account.dfs.core.windows.net | p/q"),
            ("https://host/a%20b/c/", "https | host | a b/c"),
            ("http://127.0.0.1:80/x", "http | 127.0.0.1 | x"),
            ("http://[::1]:8080", "http | [::1]:8080 | "),
        ] {
            assert_eq!(at(url), want, "{url}");
        }
    }

    #[test]
    fn wrong_urls_say_why_and_keep_secrets() {
        for (url, word) in [
            ("", "is empty"),
            ("ftp://host/x", "known are a plain path, file://, s3://"),
            ("grist://host:7077/train", "not available in this version"),
            ("s3:///x", "names no bucket"),
            ("s3://AKIA:hunter2@bucket/x", "more than a bucket's name"),
            ("s3://b/x//y", "has an empty part"),
            ("s3://b/../y", "has an empty part"),
            ("http://", "is not a web address"),
            ("http://joe:hunter2@host/x", "user name or password"),
            ("https://host/x?sig=hunter2", "had a query"),
            ("https://host/a//b", "has an empty part"),
            ("file://elsewhere/x", "no file of this machine"),
        ] {
            let said = at(url);
            assert!(said.contains(word), "{url}: {said}");
            assert!(!said.contains("hunter2") && !said.contains("AKIA"), "{said}");
        }
    }

    #[test]
    fn splitting() {
        for (url, root, object) in [
            ("x.tar", ".", "x.tar"),
            ("/x.tar", "/", "x.tar"),
            ("a/b/x.tar", "a/b", "x.tar"),
            ("file:///a/b%20c", "/a", "b c"),
            ("s3://b/x.tar", "s3://b", "x.tar"),
            ("s3://b/p%20q/x%20y.tar", "s3://b/p%20q", "x%20y.tar"),
            ("https://h:1/p%20q/x%20y.tar", "https://h:1/p%20q", "x y.tar"),
        ] {
            assert_eq!(split(url).unwrap(), (root.to_string(), object.to_string()), "{url}");
        }
        for url in ["s3://b", "s3://b/p/", "https://h/", "/", "a/..", "a/b/"] {
            assert!(split(url).is_err(), "{url}");
        }
    }

    #[test]
    fn wrappers_are_stacked() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().to_str().unwrap();
        let open = |options: StoreOptions| open(url, &options);
        assert!(open(StoreOptions::default()).unwrap().immediate());
        let slow = StoreOptions { throttle: Some(ThrottleOptions::default()), ..StoreOptions::default() };
        assert!(!open(slow.clone()).unwrap().immediate());
        let both = StoreOptions { faults: Some(FaultOptions::default()), ..slow };
        let shape = format!("{:?}", open(both).unwrap());
        let order = ["Retrying", "Throttled", "Faulty", "LocalStore"].map(|name| shape.find(name).unwrap());
        assert!(order.is_sorted(), "{shape}");
        let never = RetryOptions { attempts_max: 0, ..RetryOptions::default() };
        assert!(open(StoreOptions { retry: never, ..StoreOptions::default() }).is_err());
    }
}
