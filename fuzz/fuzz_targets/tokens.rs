#![no_main]

use std::{fs, path::PathBuf, sync::LazyLock, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use mixer_adapter_net::{
    Authorization, JwtOptions, JwtVerifier, Tokens,
    grpc::{CallLimits, Caller, Methods, Reply, UnaryService},
};
use tokio::runtime::Runtime;
use tonic::{
    Code, Status,
    codegen::{
        Service as _,
        http::{HeaderValue, Request},
    },
    service::Routes,
};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());

/// A folder of this process.
static FILES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("fuzz-tokens-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tokens"), "# Comment\nmixer s3cr3t\n").unwrap();
    fs::write(folder.join("jwks"), include_str!("../seeds/tokens/jwks")).unwrap();
    folder
});

struct Answers;

impl Methods for Answers {
    type Method = ();

    fn find(&self, _: &str) -> Option<()> {
        Some(())
    }

    fn keeps_connection(&self, (): &()) -> bool {
        false
    }

    fn has_one_message(&self, _: &str) -> bool {
        false
    }

    async fn call(&self, (): (), _: Bytes, _: Caller) -> Result<Reply, Status> {
        Ok(Reply::default())
    }
}

const LIMITS: CallLimits = CallLimits {
    max_message_size: 1024,
    max_concurrent: 10,
    max_waiting: 10,
    max_bytes: 1 << 20,
    body_timeout: Duration::from_secs(1),
    timeout: None,
};

/// Returns whether a call with this header is authenticated.
fn is_authenticated(authorization: Authorization, header: &HeaderValue) -> bool {
    let mut service = UnaryService::new(Answers, Some(authorization.into()), LIMITS, Routes::default());
    let request = Request::post("/service/Method")
        .header("content-type", "application/grpc")
        .header("authorization", header)
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .unwrap();
    let answer = RUNTIME.block_on(service.call(request)).unwrap();
    Status::from_header_map(answer.headers()).is_none_or(|status| status.code() != Code::Unauthenticated)
}

// A file of tokens, a file of keys, and the token of a client.
fuzz_target!(|bytes: &[u8]| {
    let file = FILES.join("input");
    fs::write(&file, bytes).unwrap();
    let _ = Tokens::load(file.clone(), None);
    let _ = JwtVerifier::load(JwtOptions::new(file));

    let Ok(header) = HeaderValue::from_bytes(bytes) else { return };
    let open = || Authorization::open(|_| Some("all"));
    let tokens = Tokens::load(FILES.join("tokens"), None).unwrap();
    let is_ours =
        bytes == b"s3cr3t" || bytes.eq_ignore_ascii_case(b"bearer s3cr3t") && bytes.ends_with(b"s3cr3t");
    assert_eq!(is_authenticated(open().with_tokens(tokens), &header), is_ours);
    // The only token with a right signature, that of RFC 7515, expired in 2011.
    let jwt = JwtVerifier::load(JwtOptions::new(FILES.join("jwks"))).unwrap();
    assert!(!is_authenticated(open().with_jwt(jwt), &header));
});
