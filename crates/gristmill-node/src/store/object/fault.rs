//! What the faults of object stores mean to us: which kind of error, in which words, and what to do about it.
//!
//! Texts of servers can hold addresses with signatures in them. What is passed on is a status, the store's error
//! code, or the innermost cause of the transport, and nothing else.

use crate::{Error, Kind};
use object_store::Error as Fault;
use object_store::client::HttpError;

/// Any error on the way down to the root of a fault.
type Cause = dyn std::error::Error + 'static;

/// The error of doing `what` to `place`, which lies in a store of this scheme.
pub(super) fn explain(what: &str, place: &str, scheme: &str, fault: &Fault) -> Error {
    let say = |kind, why: &str| Error::new(kind, format!("cannot {what} {place}: {why}"));
    match (fault, status(fault)) {
        (Fault::NotFound { .. }, _) | (_, Some(404 | 410)) => say(Kind::NotFound, "no such object or bucket"),
        (Fault::PermissionDenied { .. } | Fault::Unauthenticated { .. }, _) => {
            say(Kind::Config, &format!("the store refused{}", code(fault))).hint(keys(scheme))
        }
        (_, Some(status)) => {
            let why = format!("the store answered {status}{}", code(fault));
            if matches!(status, 408 | 425 | 429 | 500..) {
                say(Kind::Unavailable, &why)
            } else {
                say(Kind::Config, &why).hint(keys(scheme))
            }
        }
        (_, None) => match http_error(fault) {
            Some(cause) => say(Kind::Unavailable, &last_cause(cause)).hint(reach(scheme)),
            None => say(Kind::Io, &last_cause(fault)).hint(keys(scheme)),
        },
    }
}

/// Where keys come from.
fn keys(scheme: &str) -> &'static str {
    match scheme.as_bytes().first() {
        Some(b's') => {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION; \
                 AWS_SKIP_SIGNATURE=true reads public buckets"
        }
        Some(b'g') => {
            "check GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT; \
                 GOOGLE_SKIP_SIGNATURE=true reads public buckets"
        }
        Some(b'a') => {
            "check AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN; \
                 AZURE_SKIP_SIGNATURE=true reads public containers"
        }
        _ => "check the address; only servers that need no password can be read",
    }
}

/// What decides where requests go.
fn reach(scheme: &str) -> &'static str {
    match scheme.as_bytes().first() {
        Some(b's') => {
            "check the network, AWS_ENDPOINT_URL and AWS_REGION; without AWS_ACCESS_KEY_ID keys are asked \
                 from the machine's cloud"
        }
        Some(b'g') => {
            "check the network; without GOOGLE_APPLICATION_CREDENTIALS keys are asked from the machine's cloud"
        }
        Some(b'a') => "check the network, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
        _ => "check the address and the network",
    }
}

/// A fault and what is below it, outermost first.
fn causes(fault: &Cause) -> impl Iterator<Item = &Cause> {
    std::iter::successors(Some(fault), |error| error.source())
}

/// The status that the server answered with, if it did. The crate keeps the type private but not its words.
pub(super) fn status(fault: &Fault) -> Option<u16> {
    causes(fault).find_map(|cause| {
        let text = cause.to_string();
        text.strip_prefix("Server returned non-2xx status code: ")?.get(..3)?.parse().ok()
    })
}

/// The store's own error code in brackets, from the XML that S3, GCS and Azure all send.
fn code(fault: &Fault) -> String {
    let find = |cause: &Cause| {
        let text = cause.to_string();
        let code = text.split_once("<Code>")?.1.split_once("</Code>")?.0;
        let plain = code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric());
        plain.then(|| format!(" ({code})"))
    };
    causes(fault).find_map(find).unwrap_or_default()
}

/// The failure of the transport below, if that is what it was.
pub(super) fn http_error(fault: &Fault) -> Option<&HttpError> {
    causes(fault).find_map(|cause| cause.downcast_ref())
}

/// The innermost cause, which is the one without addresses and bodies around it.
pub(super) fn last_cause(error: &Cause) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_variables_of_their_store() {
        for (scheme, variable) in [
            ("s3", "AWS_SECRET_ACCESS_KEY"),
            ("gs", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("abfs", "AZURE_STORAGE_ACCOUNT_KEY"),
        ] {
            let source = "https://host/x?sig=hunter2".into();
            let fault = Fault::PermissionDenied { path: "x".into(), source };
            let error = explain("read", "s3://b/x", scheme, &fault);
            assert_eq!(error.kind(), Kind::Config);
            assert_eq!(error.to_string(), "cannot read s3://b/x: the store refused");
            assert!(error.remedy().unwrap().contains(variable), "{error:?}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }
}
