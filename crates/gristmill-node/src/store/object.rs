//! Object stores over HTTP: S3, Google Cloud Storage, Azure, and plain web servers.
//!
//! The `object_store` crate speaks the protocols; this file makes it obey our trait. Its own retries and its limit
//! on a whole request are off, because `retry` is the one place that has them. Keys and endpoints come from the
//! usual environment variables (`AWS_*`, `GOOGLE_*`, `AZURE_*`), with explicit settings before them.
//!
//! Memory is bounded by what was asked for: a body is gathered as it comes, never allocated because a header
//! promised it, and cut off when it is too long. Messages carry no text of a server beyond its error code.

mod fault;

use self::fault::{http_error, last_cause, status};
use super::open::Bucket;
use super::{ObjectInfo, Store, check_folder, check_name, in_folder, read_outside};
use crate::{Error, Kind, Result};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    ClientConfigKey, Error as Fault, GetOptions, GetRange, ObjectMeta, ObjectStore as Client, ObjectStoreExt,
    RetryConfig,
};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

/// Objects in a bucket below a prefix, or files of a web server below an address.
pub struct ObjectStore {
    client: Box<dyn Client>,
    place: Bucket,
}

/// The client holds keys, so only the address is shown.
impl fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectStore").field(&self.place.url()).finish()
    }
}

impl ObjectStore {
    /// The store at `place`; `settings` come before the environment.
    pub(crate) fn new(place: &Bucket, settings: &[(String, String)]) -> Result<ObjectStore> {
        // TLS needs a provider of cryptography for the process. If the program has chosen one, that one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let place = place.clone();
        let client = connect(&place, settings)?;
        Ok(ObjectStore { client, place })
    }

    fn is_web(&self) -> bool {
        self.place.scheme.starts_with("http")
    }

    /// Where `name` (an object or a folder; "" for the root) lies in the bucket.
    fn path(&self, name: &str) -> Result<Path> {
        let whole = match (self.place.prefix.as_str(), name) {
            ("", name) => name.to_string(),
            (prefix, "") => prefix.to_string(),
            (prefix, name) => format!("{prefix}/{name}"),
        };
        Path::parse(&whole).map_err(|_| {
            Error::config(format!("{name:?} is not a name that {} can have", self.url()))
                .hint("control characters cannot be in names")
        })
    }

    async fn read_now(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        check_name(self, object)?;
        let path = self.path(object)?;
        // An empty or backward range cannot be said in HTTP, and servers differ on numbers beyond what any object
        // reaches. The object must be there all the same.
        if range.start >= range.end || range.end > i64::MAX as u64 {
            let size = self.stat_now(object).await?.bytes;
            let inside = range.start == range.end && range.end <= size;
            return if inside { Ok(Bytes::new()) } else { Err(read_outside(self, object, &range, size)) };
        }
        let bounded = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        match self.client.get_opts(&path, bounded).await {
            Ok(answer) if answer.range == range => self.gather(object, &range, answer.into_stream()).await,
            Ok(answer) => Err(read_outside(self, object, &range, answer.meta.size)),
            Err(Fault::NotSupported { .. }) => self.read_whole(object, &path, range).await,
            Err(fault) if status(&fault) == Some(416) => {
                let size = self.stat_now(object).await?.bytes;
                Err(read_outside(self, object, &range, size))
            }
            Err(fault) => Err(self.error("read", object, &fault)),
        }
    }

    /// Reads from a web server that knows no ranges, which works for whole files.
    async fn read_whole(&self, object: &str, path: &Path, range: Range<u64>) -> Result<Bytes> {
        let answer = self.client.get_opts(path, GetOptions::default()).await;
        let answer = answer.map_err(|fault| self.error("read", object, &fault))?;
        let size = answer.meta.size;
        if range.end > size {
            return Err(read_outside(self, object, &range, size));
        }
        if range != (0..size) {
            let message = format!("{}/{object} can only be read as a whole", self.url());
            return Err(Error::config(message).hint("the server knows no ranged requests; use one that does"));
        }
        self.gather(object, &range, answer.into_stream()).await
    }

    /// Gathers a body that must be as long as `range`.
    async fn gather(
        &self,
        object: &str,
        range: &Range<u64>,
        mut body: BoxStream<'static, object_store::Result<Bytes>>,
    ) -> Result<Bytes> {
        let want = range.end - range.start;
        let mut parts = Vec::new();
        let mut got = 0;
        while let Some(part) = body.try_next().await.map_err(|fault| self.error("read", object, &fault))? {
            got += part.len() as u64;
            parts.push(part);
            if got > want {
                break;
            }
        }
        if got != want {
            let more = if got > want { "more than " } else { "" };
            let message = format!("cannot read {}/{object}: {more}{got} of {want} bytes came", self.url());
            return Err(Error::new(Kind::Unavailable, message));
        }
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        let mut bytes = BytesMut::with_capacity(got as usize);
        for part in &parts {
            bytes.extend_from_slice(part);
        }
        Ok(bytes.freeze())
    }

    async fn stat_now(&self, object: &str) -> Result<ObjectInfo> {
        check_name(self, object)?;
        let meta = self.client.head(&self.path(object)?).await;
        let meta = meta.map_err(|fault| self.error("read", object, &fault))?;
        Ok(info(object.to_string(), &meta))
    }

    async fn list_now(
        &self,
        prefix: &str,
        visit: &mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> Result<()> {
        check_folder(self, prefix)?;
        let path = self.path(prefix)?;
        let mut metas = self.client.list((!path.is_root()).then_some(&path));
        // Tools mark a folder with an empty object of its name, which comes right before the first in it.
        let mut empty: Option<ObjectInfo> = None;
        while let Some(meta) = metas.try_next().await.map_err(|fault| self.list_error(prefix, &fault))? {
            let Some(name) = self.name(&meta.location).filter(|name| in_folder(name, prefix)) else {
                continue;
            };
            let found = info(name.to_string(), &meta);
            if let Some(empty) = empty.take().filter(|empty| !in_folder(&found.path, &empty.path)) {
                visit(empty)?;
            }
            if found.bytes == 0 {
                empty = Some(found);
            } else {
                visit(found)?;
            }
        }
        empty.map_or(Ok(()), visit)
    }

    /// The name below the root of what lies at `path` in the bucket.
    fn name<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let path = path.as_ref();
        let prefix = self.place.prefix.as_str();
        let name = if prefix.is_empty() { path } else { path.strip_prefix(prefix)?.strip_prefix('/')? };
        (!name.is_empty()).then_some(name)
    }

    fn list_error(&self, prefix: &str, fault: &Fault) -> Error {
        let error = self.error("list", prefix, fault);
        let answered = status(fault).is_none_or(|status| status < 500 || status == 501);
        if !self.is_web() || (error.is_retryable() && (http_error(fault).is_some() || !answered)) {
            return error;
        }
        Error::config(format!("cannot list {}: the server does not speak WebDAV", self.url()))
            .hint("give a list file or the URL of a tar file, or use the object store's own URL (s3://, gs://, az://)")
    }

    fn error(&self, what: &str, object: &str, fault: &Fault) -> Error {
        let slash = if object.is_empty() { "" } else { "/" };
        fault::explain(what, &format!("{}{slash}{object}", self.url()), &self.place.scheme, fault)
    }
}

fn connect(place: &Bucket, settings: &[(String, String)]) -> Result<Box<dyn Client>> {
    let failed = |fault: Fault| Error::config(format!("cannot use {}: {}", place.url(), last_cause(&fault)));
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    // The crate counts a whole request, body included. Ours is the limit that users can set.
    let unlimited = (ClientConfigKey::Timeout, "1day");
    let host = place.host.as_str();
    Ok(match place.scheme.as_str() {
        "s3" | "s3a" => {
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(host).with_retry(once);
            for (key, value) in parsed::<AmazonS3ConfigKey>(settings)? {
                builder = builder.with_config(key, value);
            }
            builder = builder.with_config(AmazonS3ConfigKey::Client(unlimited.0), unlimited.1);
            let endpoint = builder
                .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
                .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
            // Whoever writes http:// means it.
            if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
                builder = builder.with_allow_http(true);
            }
            Box::new(builder.build().map_err(failed)?)
        }
        "gs" => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(host).with_retry(once);
            for (key, value) in parsed::<GoogleConfigKey>(settings)? {
                builder = builder.with_config(key, value);
            }
            builder = builder.with_config(GoogleConfigKey::Client(unlimited.0), unlimited.1);
            Box::new(builder.build().map_err(failed)?)
        }
        "http" | "https" => {
            let url = format!("{}://{host}/", place.scheme);
            let mut builder = HttpBuilder::new().with_url(url).with_retry(once);
            builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
            for (key, value) in parsed::<ClientConfigKey>(settings)? {
                builder = builder.with_config(key, value);
            }
            Box::new(builder.with_config(unlimited.0, unlimited.1).build().map_err(failed)?)
        }
        scheme => {
            let url = format!("{scheme}://{host}/");
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(once);
            for (key, value) in parsed::<AzureConfigKey>(settings)? {
                builder = builder.with_config(key, value);
            }
            builder = builder.with_config(AzureConfigKey::Client(unlimited.0), unlimited.1);
            Box::new(builder.build().map_err(failed)?)
        }
    })
}

/// Settings under the names that this kind of store knows; an unknown one is an error, not a setting that does
/// nothing.
fn parsed<K: FromStr>(settings: &[(String, String)]) -> Result<Vec<(K, String)>> {
    let known = |(name, value): &(String, String)| match name.to_ascii_lowercase().parse() {
        Ok(key) => Ok((key, value.clone())),
        Err(_) => Err(Error::config(format!("{name} is not a setting of this kind of store"))
            .hint("settings have the names of the store's environment variables, such as AWS_ENDPOINT_URL")),
    };
    settings.iter().map(known).collect()
}

fn info(path: String, meta: &ObjectMeta) -> ObjectInfo {
    // Listings and single answers of one store write the same tag with and without quotes.
    let tag = meta.e_tag.as_deref().map(|tag| tag.trim_start_matches("W/").trim_matches('"'));
    let version = match tag {
        Some(tag) if !tag.is_empty() => xxh3_64(tag.as_bytes()),
        _ => meta.last_modified.timestamp() as u64,
    };
    ObjectInfo { path, bytes: meta.size, version }
}

impl Store for ObjectStore {
    fn url(&self) -> String {
        self.place.url()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        self.read_now(object, range).boxed()
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        self.stat_now(object).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        self.list_now(prefix, visit).boxed()
    }

    fn immediate(&self) -> bool {
        false
    }

    fn retries(&self) -> u64 {
        0
    }

    fn faults(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use object_store::memory::InMemory;

    fn store(names: &[(&str, &'static str)]) -> ObjectStore {
        let client = InMemory::new();
        for (name, content) in names {
            block_on(client.put(&Path::parse(name).unwrap(), (*content).into())).unwrap();
        }
        let place = Bucket { scheme: "s3".into(), host: "bucket".into(), prefix: "p".into() };
        ObjectStore { client: Box::new(client), place }
    }

    #[test]
    fn marks_of_folders_are_no_objects() {
        let store = store(&[
            ("p", ""),
            ("p/a", ""),
            ("p/a/x", "1"),
            ("p/b", ""),
            ("p/bb/x", "2"),
            ("p/z", ""),
            ("q/x", "3"),
        ]);
        let mut names = Vec::new();
        let mut visit = |info: ObjectInfo| {
            names.push(info.path);
            Ok(())
        };
        block_on(store.list("", &mut visit)).unwrap();
        assert_eq!(names, ["a/x", "b", "bb/x", "z"]);
    }

    #[test]
    fn a_tag_is_the_same_with_and_without_quotes() {
        let meta = |tag: Option<&str>| ObjectMeta {
            location: Path::ROOT,
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: tag.map(Into::into),
            version: None,
        };
        let version = |tag| info("x".into(), &meta(tag)).version;
        assert_eq!(version(Some("\"0x8D\"")), version(Some("0x8D")));
        assert_eq!(version(Some("W/\"0x8D\"")), version(Some("0x8D")));
        assert_ne!(version(Some("0x8E")), version(Some("0x8D")));
        assert_eq!(version(None), 0);
        assert_eq!(version(Some("")), 0);
    }
}
