//! Opening sockets and accepting connections.

use super::connection::{self, Peer};
use super::{ServeOptions, State, Tls, http};
use crate::client::PEM_BYTES_MAX;
use crate::config::text;
use crate::{Error, Kind, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;
/// How long to wait when the system has no room for one more connection.
pub(super) const FULL_PAUSE: Duration = Duration::from_millis(50);
/// Files that are open besides connections.
const OTHER_FILES: u64 = 256;

/// Open sockets on which nobody is accepted yet.
#[derive(Debug)]
pub(super) struct Listeners {
    tcp: Option<TcpListener>,
    http: Option<TcpListener>,
    unix: Option<(UnixListener, PathBuf)>,
}

impl Listeners {
    /// Opens all of them or none.
    pub(super) async fn open(options: &ServeOptions, token: bool) -> Result<Listeners> {
        let http = tcp(&options.http, "serve.http", token).await?;
        let tcp = tcp(&options.listen, "serve.listen", token).await?;
        let unix = if options.unix.is_empty() { None } else { Some(unix(Path::new(&options.unix))?) };
        Ok(Listeners { tcp, http, unix })
    }

    pub(super) fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    pub(super) fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    pub(super) fn unix_path(&self) -> Option<PathBuf> {
        self.unix.as_ref().map(|(_, path)| path.clone())
    }

    /// Accepts from now on, until the server drains.
    pub(super) fn serve(self, state: &Arc<State>, tls: Tls) {
        if let Some(listener) = self.http {
            tokio::spawn(http::serve(listener, state.clone(), tls.clone()));
        }
        if let Some(listener) = self.tcp {
            let state = state.clone();
            tokio::spawn(async move {
                let mut draining = state.draining.subscribe();
                while let Some(accepted) = accept(&mut draining, listener.accept()).await {
                    let Ok((stream, _)) = accepted else { continue };
                    // Without it small answers would wait for the acknowledgement of those before.
                    let _ = stream.set_nodelay(true);
                    let peer = match tls.clone() {
                        Some(tls) => Peer::Tls(Box::new((stream, tls))),
                        None => Peer::Tcp(stream),
                    };
                    connection::start(state.clone(), peer);
                }
            });
        }
        if let Some((listener, _)) = self.unix {
            let state = state.clone();
            tokio::spawn(async move {
                let mut draining = state.draining.subscribe();
                while let Some(accepted) = accept(&mut draining, listener.accept()).await {
                    let Ok((stream, _)) = accepted else { continue };
                    connection::start(state.clone(), Peer::Unix(stream));
                }
            });
        }
    }
}

/// The next connection, or `None` when the server drains.
async fn accept<T>(
    draining: &mut watch::Receiver<bool>,
    next: impl Future<Output = io::Result<T>>,
) -> Option<io::Result<T>> {
    let accepted = tokio::select! {
        biased;
        _ = draining.wait_for(|draining| *draining) => return None,
        accepted = next => accepted,
    };
    if accepted.is_err() {
        // One that went away before it was accepted, or no file descriptors left: others may do better soon.
        tokio::time::sleep(FULL_PAUSE).await;
    }
    Some(accepted)
}

async fn tcp(address: &str, key: &str, token: bool) -> Result<Option<TcpListener>> {
    if address.is_empty() {
        return Ok(None);
    }
    let failed = |e: io::Error| {
        let error = Error::io("listen on", address, e);
        match error.kind() {
            Kind::NotFound => error,
            _ => error.hint(format!("is another program using it? Choose another port with {key}")),
        }
    };
    let mut found = tokio::net::lookup_host(address).await.map_err(|e| {
        Error::config(format!("{key} = {address:?} is not an address and a port: {e}"))
            .hint("write 127.0.0.1:7077, [::1]:7077 or a name and a port")
    })?;
    let Some(at) = found.next() else {
        return Err(Error::config(format!("{key} = {address:?} is the address of nothing")));
    };
    if !token && !at.ip().to_canonical().is_loopback() {
        return Err(Error::config(format!(
            "will not listen on {address}, which others can reach, without a token"
        ))
        .hint("write one with `openssl rand -hex 32 > token` and give --token-file token (or GRISTMILL_TOKEN), or listen on 127.0.0.1"));
    }
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
    // A port that was served until a moment ago is free, although the system still waits for stragglers.
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(at).map_err(failed)?;
    socket.listen(BACKLOG).map_err(failed).map(Some)
}

fn unix(path: &Path) -> Result<(UnixListener, PathBuf)> {
    let failed = |e| Error::io("listen on", path.display(), e);
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(Error::config(format!("{} is there already and is not a socket", path.display()))
                .hint("choose another path with serve.unix (--unix)"));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(Error::config(format!("{} is in use by another program", path.display()))
                .hint("choose another path with serve.unix (--unix)"));
        }
        // Left behind by a server that was killed.
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Only its owner may come in that way; others have TCP and the token.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok((listener, path.to_path_buf()))
}

/// What TLS needs, if there is a certificate.
pub(super) fn tls(options: &ServeOptions) -> Result<Tls> {
    if options.tls_cert.is_empty() {
        return Ok(None);
    }
    let read = |file: &str, what: &str| text::read(Path::new(file), what, PEM_BYTES_MAX);
    let bad =
        |file: &str, e: &dyn std::fmt::Display| Error::config(format!("cannot use {file} for TLS: {e}"));
    let pem = read(&options.tls_cert, "certificate")?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| bad(&options.tls_cert, &e))?;
    let key = PrivateKeyDer::from_pem_slice(read(&options.tls_key, "private key")?.as_bytes())
        .map_err(|e| bad(&options.tls_key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(&options.tls_cert, &e))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| bad(&options.tls_cert, &e))?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Lets the process open as many files as the connections need, as far as the system allows.
pub(super) fn allow_files(connections: u64) -> Result<()> {
    let now = getrlimit(Resource::Nofile);
    let wanted = connections.saturating_add(OTHER_FILES);
    if now.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if now.maximum.is_some_and(|maximum| maximum < wanted) {
        let most = now.maximum.unwrap_or(0);
        return Err(Error::config(format!(
            "serve.connections_max = {connections} needs {wanted} open files; the system allows {most}"
        ))
        .hint("lower it, or raise the limit (ulimit -n)"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum })
        .map_err(|e| Error::io("raise", "the limit on open files", e.into()))
}
