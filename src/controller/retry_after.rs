//! Makes the wait that the API server's flow control asks for readable to kube.
//!
//! It answers 429 in plain text, and says in the header `Retry-After` how many seconds to wait (Kubernetes, API
//! Priority and Fairness; RFC 6585 section 4). kube reads bodies only. So this layer copies the wait from the header
//! into a body that kube reads: a `Status`, as the API server itself sends it elsewhere.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::{Body, DynBody};
use kube::core::Status;
use serde_json::json;

/// The longest wait that is granted, even if the server asks for more, so that a mistyped number does not stop us for
/// hours.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The wait that an answer asks for.
pub(super) fn asked_for(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(LONGEST_WAIT))
}

/// Turns a 429 with `Retry-After` and without a `Status` into one with a `Status`; leaves everything else alone.
///
/// The code says that the request was not carried out. A header with a date is left alone: the API server sends none.
pub(super) fn with_status(answer: Response<Box<DynBody>>) -> Response<Box<DynBody>> {
    let headers = answer.headers();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_json = text(&CONTENT_TYPE).starts_with("application/json");
    let seconds = text(&RETRY_AFTER).trim().parse::<u32>().ok();
    let (StatusCode::TOO_MANY_REQUESTS, false, Some(seconds)) = (answer.status(), is_json, seconds) else {
        return answer;
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("too many requests: the server asks for a pause of {seconds} s"),
        "reason": "TooManyRequests",
        "details": {"retryAfterSeconds": seconds},
        "code": StatusCode::TOO_MANY_REQUESTS.as_u16(),
    });
    let (mut parts, _) = answer.into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(parts, boxed(status.to_string()))
}

fn boxed(text: String) -> Box<DynBody> {
    Box::new(Body::from(text.into_bytes()).map_err(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(code: u16, headers: &[(&str, &str)], text: &'static str) -> (u16, String) {
        let mut answer = Response::builder().status(code);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        let answer = with_status(answer.body(boxed(text.to_owned())).unwrap());
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_header_of_flow_control_becomes_a_status() {
        let headers =
            [("content-type", "text/plain; charset=utf-8"), ("retry-after", "7"), ("content-length", "9")];
        let (code, body) = read(429, &headers, "too many\n").await;
        let status: Status = serde_json::from_str(&body).unwrap();
        assert_eq!((code, status.code, status.reason.as_str()), (429, 429, "TooManyRequests"));
        assert_eq!(asked_for(&status), Some(Duration::from_secs(7)));
    }

    #[tokio::test]
    async fn no_node_waits_for_hours() {
        let (_, body) = read(429, &[("retry-after", "86400")], "").await;
        assert_eq!(asked_for(&serde_json::from_str(&body).unwrap()), Some(LONGEST_WAIT));
    }

    #[tokio::test]
    async fn every_other_answer_stays_as_it_is() {
        let (json, plain) = (("content-type", "application/json"), ("content-type", "text/plain"));
        for (code, headers) in [
            (429, vec![json, ("retry-after", "7")]),
            (429, vec![plain]),
            (429, vec![plain, ("retry-after", "Sat, 21 Nov 2026 10:00:00 GMT")]),
            (503, vec![plain, ("retry-after", "7")]),
            (200, vec![plain, ("retry-after", "7")]),
        ] {
            assert_eq!(
                read(code, &headers, "as it is").await,
                (code, "as it is".to_owned()),
                "{code} {headers:?}"
            );
        }
    }
}
