//! A real S3 server on a real socket, with keys.

use super::block_on;
use super::conformance::{Excused, check, write_objects};
use gristmill_node::Kind;
use gristmill_node::store::{RetryOptions, Store, StoreOptions, open};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

const KEY: &str = "GRISTMILLTESTKEY";
pub(crate) const SECRET: &str = "not-for-messages-7391";

/// Serves the folders below `root` as buckets, until the runtime ends.
pub(crate) async fn serve(root: &Path) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            socket.set_nodelay(true).unwrap();
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service.clone());
            tokio::spawn(serving);
        }
    });
    address
}

pub(crate) fn options(address: SocketAddr, secret: &str) -> StoreOptions {
    let set = [
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_REGION", "us-east-1".to_string()),
        ("AWS_ACCESS_KEY_ID", KEY.to_string()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_string()),
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false".to_string()),
    ];
    StoreOptions {
        retry: RetryOptions { attempts_max: 2, backoff_ms: 1, ..RetryOptions::default() },
        object: set.map(|(name, value)| (name.to_string(), value)).to_vec(),
        ..StoreOptions::default()
    }
}

#[test]
fn s3_conforms() {
    let dir = tempfile::tempdir().unwrap();
    for root in ["bucket", "deep/data set/50%"] {
        write_objects(&dir.path().join(root));
    }
    block_on(async {
        let address = serve(dir.path()).await;
        for url in ["s3://bucket", "s3://deep/data set/50%/"] {
            let store = open(url, &options(address, SECRET)).unwrap();
            assert!(!store.immediate());
            check(store.as_ref(), Excused::S3OnFiles).await;
            assert_eq!(store.retries(), 0, "nothing had to be read twice");
        }
    });
}

#[test]
fn long_listings_have_pages() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = dir.path().join("bucket");
    std::fs::create_dir(&bucket).unwrap();
    (0..1_100).for_each(|n| std::fs::write(bucket.join(format!("{n:04}")), b"x").unwrap());
    block_on(async {
        let store = open("s3://bucket", &options(serve(dir.path()).await, SECRET)).unwrap();
        let mut names = Vec::new();
        let mut visit = |info: gristmill_node::store::ObjectInfo| {
            names.push(info.path);
            Ok(())
        };
        store.list("", &mut visit).await.unwrap();
        assert_eq!(names, (0..1_100).map(|n| format!("{n:04}")).collect::<Vec<_>>());
    });
}

#[test]
fn refusals_name_the_variables_and_keep_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    write_objects(&dir.path().join("bucket"));
    block_on(async {
        let address = serve(dir.path()).await;
        let wrong = "not-for-messages-either";
        let store = open("s3://bucket", &options(address, wrong)).unwrap();
        for error in [
            store.read("a/x", 0..10).await.unwrap_err(),
            store.stat("a/x").await.unwrap_err(),
            store.list("", &mut |_| Ok(())).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::Config, "{error}");
            assert!(
                error.to_string().starts_with("cannot ") && error.to_string().contains("s3://bucket"),
                "{error}"
            );
            assert!(error.remedy().unwrap().contains("AWS_SECRET_ACCESS_KEY"), "{error:?}");
            assert!(!format!("{error} {error:?} {store:?}").contains("not-for-messages"), "{error:?}");
        }
        assert_eq!(store.retries(), 0, "a refusal is final");
        assert!(!format!("{:?}", options(address, SECRET)).contains(SECRET));

        let store = open("s3://no-such-bucket", &options(address, SECRET)).unwrap();
        assert_eq!(store.list("", &mut |_| Ok(())).await.unwrap_err().kind(), Kind::NotFound);
    });
}

#[test]
fn a_server_that_is_gone_is_unavailable() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let store = open("s3://bucket", &options(gone, SECRET)).unwrap();
    let error = block_on(store.read("a/x", 0..10)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(error.to_string().contains("gave up after 2 attempts"), "{error}");
    assert!(error.remedy().unwrap().contains("AWS_ENDPOINT_URL"), "{error:?}");
    assert_eq!(store.retries(), 1);
}

#[test]
fn settings_of_another_kind_of_store_are_refused() {
    let object = vec![("AZURE_STORAGE_ACCOUNT_NAME".to_string(), "x".to_string())];
    let error = open("s3://bucket", &StoreOptions { object, ..StoreOptions::default() }).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("AZURE_STORAGE_ACCOUNT_NAME"), "{error}");
}

#[test]
fn the_other_clouds_open_without_asking_anyone() {
    let set = |pairs: &[(&str, &str)]| StoreOptions {
        object: pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        ..StoreOptions::default()
    };
    let stores: [(&str, StoreOptions); 3] = [
        ("gs://bucket/p", set(&[("GOOGLE_SKIP_SIGNATURE", "true")])),
        ("az://box/p", set(&[("AZURE_STORAGE_ACCOUNT_NAME", "acc"), ("AZURE_SKIP_SIGNATURE", "true")])),
        ("abfs://box@acc.dfs.core.windows.net/p", set(&[("AZURE_SKIP_SIGNATURE", "true")])),
    ];
    for (url, options) in stores {
        let store: Arc<dyn Store> = open(url, &options).unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!(store.url(), url);
    }
}
