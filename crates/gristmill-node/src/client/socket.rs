//! From an address to a connection that the node welcomed.

use super::{Address, ClientOptions, unavailable};
use crate::config::text;
use crate::error::plain;
use crate::wire::{Failure, Greeting, HEADER_BYTES, Header, Hello, SENTENCE_BYTES_MAX, Verb, Welcome};
use crate::wire::{end_frame, put_frame, spoken};
use crate::{Error, Result};
use bytes::BytesMut;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest answer during the handshake.
const HANDSHAKE_BYTES_MAX: u32 = SENTENCE_BYTES_MAX as u32 + 64;
/// The largest PEM file that is read.
pub(crate) const PEM_BYTES_MAX: u64 = 1 << 20;

/// An open connection.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// The process at the other end, if it is on this machine and of this user: what another user's process says is
    /// no reason to open anything.
    pub(super) fn beside(&self) -> Option<i32> {
        match self {
            Socket::Unix(stream) => {
                let other = stream.peer_cred().ok()?;
                other.pid().filter(|_| other.uid() == rustix::process::geteuid().as_raw())
            }
            Socket::Tcp(_) | Socket::Tls(_) => None,
        }
    }
}

/// What TLS needs: who to trust, and the name that the node's certificate must bear.
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// Prepares TLS if the address or the options ask for it.
pub(super) fn tls(address: &Address, ca: Option<&Path>) -> Result<Option<Tls>> {
    let Address::Tcp { host, tls, .. } = address else { return Ok(None) };
    let Some(ca) = ca else {
        return match tls {
            false => Ok(None),
            true => Err(Error::config("grists:// needs to know who signed the node's certificate")
                .hint("name the certificate authority's PEM file: client.tls_ca")),
        };
    };
    let pem = text::read(ca, "certificate authority", PEM_BYTES_MAX)?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let bad = |e: &dyn std::fmt::Display| {
            Error::config(format!("{} holds no valid certificate: {e}", ca.display()))
        };
        let certificate = certificate.map_err(|e| bad(&e))?;
        roots.add(certificate).map_err(|e| bad(&e))?;
    }
    if roots.is_empty() {
        return Err(Error::config(format!("{} holds no certificate", ca.display())).hint("it must be PEM"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::config(format!("cannot set up TLS: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.clone())
        .map_err(|_| Error::config(format!("{host:?} is not a name that a certificate can bear")))?;
    Ok(Some(Tls { connector: TlsConnector::from(Arc::new(config)), name }))
}

/// Connects and shakes hands.
pub(super) async fn connect(
    address: &Address,
    options: &ClientOptions,
    tls: Option<&Tls>,
    url: &str,
) -> Result<(Socket, Welcome, u8)> {
    let failed = |e: std::io::Error| unavailable(url, plain(&e));
    let mut socket = match address {
        Address::Unix { path, .. } => Socket::Unix(UnixStream::connect(path).await.map_err(failed)?),
        Address::Tcp { host, port, .. } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            match tls {
                None => Socket::Tcp(stream),
                Some(tls) => {
                    let stream = tls.connector.connect(tls.name.clone(), stream).await.map_err(failed)?;
                    Socket::Tls(Box::new(stream))
                }
            }
        }
    };
    let (welcome, version) = match &mut socket {
        Socket::Tcp(stream) => greet(stream, address, options, url).await,
        Socket::Unix(stream) => greet(stream, address, options, url).await,
        Socket::Tls(stream) => greet(stream, address, options, url).await,
    }?;
    Ok((socket, welcome, version))
}

async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    address: &Address,
    options: &ClientOptions,
    url: &str,
) -> Result<(Welcome, u8)> {
    let (header, body) = answer(stream, url).await?;
    // What both sides know.
    let version = spoken(header.request).min(options.wire_version);
    let greeting = match header.verb {
        Verb::Greeting => Greeting::decode(&body)?,
        Verb::Refused => return Err(Failure::decode(&body)?),
        _ => return Err(Error::corrupt(format!("what answers at {url} does not greet as a node does"))),
    };
    let hello = Hello {
        proof: options.token.as_ref().map_or([0; 32], |token| token.prove(&greeting.nonce)),
        digest: options.digest,
        name: address.name().to_string(),
        job: options.job.clone(),
        peer: options.peer,
    };
    let mut out = BytesMut::new();
    let start = put_frame(&mut out, Verb::Hello, if version > 1 { version.into() } else { 0 });
    hello.encode(&mut out);
    end_frame(&mut out, start, 0);
    stream.write_all(&out).await.map_err(|e| unavailable(url, plain(&e)))?;
    let (header, body) = answer(stream, url).await?;
    let welcome = match header.verb {
        Verb::Welcome => Welcome::decode(&body)?,
        Verb::Refused => return Err(Failure::decode(&body)?.at(url)),
        _ => return Err(Error::corrupt(format!("the node at {url} does not welcome as it should"))),
    };
    if options.digest.is_some_and(|digest| digest != welcome.digest) {
        return Err(Error::config(format!("the node at {url} serves another data set: {}", welcome.digest)));
    }
    Ok((welcome, version))
}

/// One frame of the handshake.
async fn answer<S: AsyncRead + Unpin>(stream: &mut S, url: &str) -> Result<(Header, Vec<u8>)> {
    let lost = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => unavailable(url, "it closed the connection"),
        _ => unavailable(url, plain(&e)),
    };
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await.map_err(lost)?;
    let header = Header::decode(&header, HANDSHAKE_BYTES_MAX).map_err(|e| e.at(url))?;
    let mut body = vec![0; header.bytes as usize];
    stream.read_exact(&mut body).await.map_err(lost)?;
    Ok((header, body))
}
