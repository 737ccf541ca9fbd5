#![allow(clippy::unwrap_used)]

use std::{fs, time::Duration};

use serde_json::{Value as Json, json};
use tempfile::TempDir;
use test_pki::{Issuer, unsigned};

use super::*;

/// The time at which the tokens of these tests are verified.
const NOW: f64 = 1_700_000_000.0;

/// The claims of a token that is accepted.
fn mixer() -> Json {
    json!({ "sub": "mixer", "exp": NOW + 600.0 })
}

/// The same with another value.
fn with(name: &str, value: Json) -> Json {
    let mut claims = mixer();
    claims[name] = value;
    claims
}

struct Fixture {
    directory: TempDir,
    verifier: Arc<JwtVerifier>,
}

fn write(directory: &TempDir, keys: &[Json]) -> PathBuf {
    let path = directory.path().join("jwks.json");
    fs::write(&path, json!({ "keys": keys }).to_string()).unwrap();
    path
}

impl Fixture {
    fn new(keys: &[Json], options: impl FnOnce(JwtOptions) -> JwtOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let verifier = JwtVerifier::load(options(JwtOptions::new(write(&directory, keys)))).unwrap();
        Self { directory, verifier }
    }

    fn of(issuer: &Issuer) -> Self {
        Self::new(&[issuer.jwk()], |options| options)
    }

    /// Verifies a token of a new connection.
    fn verify(&self, token: &str) -> Result<Arc<str>, JwtError> {
        self.verify_of(&RefusedTokens::default(), token)
    }

    fn verify_of(&self, connection: &RefusedTokens, token: &str) -> Result<Arc<str>, JwtError> {
        self.verifier.verify(token.as_bytes(), NOW, connection)
    }

    fn rotate(&self, keys: &[Json]) {
        write(&self.directory, keys);
        self.verifier.reload();
    }

    fn replace(&self, content: &str) {
        fs::write(self.directory.path().join("jwks.json"), content).unwrap();
        self.verifier.reload();
    }
}

/// The examples in RFC 7515, appendices A.2 and A.3: key, and token.
fn rfc_7515() -> [(Json, String); 2] {
    let claims =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let rsa = json!({
        "kty": "RSA",
        "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
        "e": "AQAB",
    });
    let rs256 = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let ec = json!({
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    let es256 = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    [
        (rsa, format!("eyJhbGciOiJSUzI1NiJ9.{claims}.{rs256}")),
        (ec, format!("eyJhbGciOiJFUzI1NiJ9.{claims}.{es256}")),
    ]
}

#[test]
fn signatures_of_rfc_7515_are_verified() {
    let directory = tempfile::tempdir().unwrap();
    let examples = rfc_7515();
    let keys = KeySet::read(&write(&directory, &examples.clone().map(|(key, _)| key))).unwrap();
    for (_, token) in &examples {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let header: Header = decode(signed.split('.').next().unwrap()).unwrap();
        let key = keys.find(&header).unwrap();
        let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert_eq!(key.verify(signed.as_bytes(), &signature), Ok(()), "{}", header.alg);
        signature[0] ^= 1;
        assert_eq!(key.verify(signed.as_bytes(), &signature), Err(JwtError::Signature));
    }
}

#[test]
fn the_subject_of_a_valid_token_is_the_name_of_the_client() {
    let issuer = Issuer::new("1");
    let fixture = Fixture::of(&issuer);
    let token = issuer.issue(&mixer());
    // The second time its signature is known.
    for _ in 0..2 {
        assert_eq!(fixture.verify(&token).as_deref(), Ok("mixer"));
    }
    let mut headers = HeaderMap::new();
    let refused = RefusedTokens::default();
    assert_eq!(fixture.verifier.client(&headers, &refused), None);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let current = issuer.issue(&json!({ "sub": "proxy", "exp": now + 600 }));
    headers.insert("authorization", format!("Bearer {current}").parse().unwrap());
    assert_eq!(fixture.verifier.client(&headers, &refused).as_deref(), Some("proxy"));
}

#[test]
fn changed_and_foreign_tokens_are_refused() {
    let (issuer, other) = (Issuer::new("1"), Issuer::new("1"));
    let fixture = Fixture::of(&issuer);
    let token = issuer.issue(&mixer());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let admin = unsigned(&json!({ "alg": "ES256", "kid": "1" }), &with("sub", json!("admin")));
    for (changed, reason) in [
        (format!("{admin}.{signature}"), JwtError::Signature),
        (other.issue(&mixer()), JwtError::Signature),
        (format!("{signed}."), JwtError::Signature),
        (signed.to_owned(), JwtError::Malformed),
        (format!("{token}."), JwtError::Malformed),
        (format!("{token}="), JwtError::Malformed),
        (String::new(), JwtError::Malformed),
        ("a.b.c".to_owned(), JwtError::Malformed),
        (format!("{token}{}", "A".repeat(MAX_TOKEN)), JwtError::TooLong),
    ] {
        assert_eq!(fixture.verify(&changed), Err(reason), "{changed:.100}");
    }
    // Neither is anything remembered that would let them in later.
    assert_eq!(fixture.verify(&token).as_deref(), Ok("mixer"));
}

#[test]
fn only_the_algorithm_of_the_key_is_accepted() {
    let issuer = Issuer::new("1");
    let public = issuer.jwk();
    let fixture = Fixture::of(&issuer);
    let token = |header: Json| issuer.sign(&header, &mixer());
    for alg in ["none", "None", "HS256", "HS512", "ES384", "PS256", ""] {
        assert_eq!(
            fixture.verify(&token(json!({ "alg": alg, "kid": "1" }))),
            Err(JwtError::Algorithm),
            "{alg}"
        );
    }
    assert_eq!(fixture.verify(&token(json!({ "alg": "RS256", "kid": "1" }))), Err(JwtError::Key));
    assert_eq!(fixture.verify(&token(json!({ "kid": "1" }))), Err(JwtError::Malformed));
    let critical = json!({ "alg": "ES256", "kid": "1", "crit": ["exp"], "exp": 1 });
    assert_eq!(fixture.verify(&token(critical)), Err(JwtError::Critical));
    // With the public key as the secret of a symmetric algorithm, as a set that has only such a key.
    let directory = tempfile::tempdir().unwrap();
    let secret = json!({ "kty": "oct", "kid": "1", "alg": "HS256", "k": public["x"] });
    let refused = JwtVerifier::load(JwtOptions::new(write(&directory, &[secret]))).unwrap_err();
    assert!(matches!(refused, JwksError::Empty { .. }), "{refused}");
}

#[test]
fn the_key_id_selects_the_key() {
    let (first, second) = (Issuer::new("1"), Issuer::new("2"));
    let fixture = Fixture::new(&[first.jwk(), second.jwk()], |options| options);
    assert!(fixture.verify(&first.issue(&mixer())).is_ok());
    assert!(fixture.verify(&second.issue(&mixer())).is_ok());
    let of = |header: Json| fixture.verify(&first.sign(&header, &mixer()));
    assert_eq!(of(json!({ "alg": "ES256", "kid": "2" })), Err(JwtError::Signature));
    assert_eq!(of(json!({ "alg": "ES256", "kid": "3" })), Err(JwtError::Key));
    assert_eq!(of(json!({ "alg": "ES256" })), Err(JwtError::Key), "one of two keys would have to be guessed");
    let only = Fixture::of(&first);
    assert!(only.verify(&first.sign(&json!({ "alg": "ES256" }), &mixer())).is_ok());
}

#[test]
fn keys_for_other_purposes_are_skipped() {
    let issuer = Issuer::new("1");
    for (name, value) in [("use", "enc"), ("alg", "ES384"), ("crv", "P-384"), ("kty", "OKP"), ("x", "AAAA")] {
        let mut key = issuer.jwk();
        key[name] = value.into();
        let fixture = Fixture::new(&[key, Issuer::new("2").jwk(), json!("not a key")], |options| options);
        assert_eq!(fixture.verify(&issuer.issue(&mixer())), Err(JwtError::Key), "{name}");
    }
}

#[test]
fn tokens_are_valid_between_two_times_give_or_take_a_minute() {
    let issuer = Issuer::new("1");
    let fixture = Fixture::of(&issuer);
    for (claims, verified) in [
        (with("exp", json!(NOW - 59.0)), Ok(())),
        (with("exp", json!(NOW - 60.0)), Err(JwtError::Expired)),
        (with("nbf", json!(NOW + 60.0)), Ok(())),
        (with("nbf", json!(NOW + 61.0)), Err(JwtError::NotYetValid)),
        (json!({ "sub": "mixer" }), Err(JwtError::Malformed)),
        (with("exp", json!("tomorrow")), Err(JwtError::Malformed)),
    ] {
        assert_eq!(fixture.verify(&issuer.issue(&claims)).map(drop), verified, "{claims}");
    }
    let token = issuer.issue(&mixer());
    assert!(fixture.verify(&token).is_ok());
    let later = fixture.verifier.verify(token.as_bytes(), NOW + 660.0, &RefusedTokens::default());
    assert_eq!(later, Err(JwtError::Expired), "also when its signature is known");
}

#[test]
fn issuer_audience_and_subject_are_checked() {
    let issuer = Issuer::new("1");
    let open = Fixture::of(&issuer);
    let strict = Fixture::new(&[issuer.jwk()], |options| JwtOptions {
        issuer: Some("https://issuer.example".to_owned()),
        audiences: vec!["mixer".to_owned()],
        ..options
    });
    let claims = |iss: &str, aud: Json| {
        let mut claims = with("iss", json!(iss));
        claims["aud"] = aud;
        issuer.issue(&claims)
    };
    const ISSUER: &str = "https://issuer.example";
    for (token, verified) in [
        (claims(ISSUER, json!("mixer")), Ok(())),
        (claims(ISSUER, json!(["other", "mixer"])), Ok(())),
        (claims("https://other.example", json!("mixer")), Err(JwtError::Issuer)),
        (claims(ISSUER, json!("other")), Err(JwtError::Audience)),
        (claims(ISSUER, json!([])), Err(JwtError::Audience)),
        (issuer.issue(&with("iss", json!(ISSUER))), Err(JwtError::Audience)),
        (issuer.issue(&with("aud", json!("mixer"))), Err(JwtError::Issuer)),
    ] {
        assert_eq!(strict.verify(&token).map(drop), verified);
    }
    assert_eq!(
        open.verify(&claims(ISSUER, json!("mixer"))),
        Err(JwtError::Audience),
        "it is for somebody else"
    );
    for subject in ["", "a\nb", &"a".repeat(257)] {
        assert_eq!(open.verify(&issuer.issue(&with("sub", json!(subject)))), Err(JwtError::Subject));
    }
}

#[test]
fn keys_are_rotated_with_their_file() {
    let (former, next) = (Issuer::new("1"), Issuer::new("2"));
    let fixture = Fixture::of(&former);
    let (by_former, by_next) = (former.issue(&mixer()), next.issue(&mixer()));
    assert!(fixture.verify(&by_former).is_ok());
    assert_eq!(fixture.verify(&by_next), Err(JwtError::Key));
    fixture.rotate(&[former.jwk(), next.jwk()]);
    assert!(fixture.verify(&by_former).is_ok());
    assert!(fixture.verify(&by_next).is_ok());
    fixture.rotate(&[next.jwk()]);
    assert_eq!(fixture.verify(&by_former), Err(JwtError::Key), "also a token that was verified before");
    fixture.replace("{\"keys\": [");
    assert!(fixture.verify(&by_next).is_ok(), "a file with faults cannot be used");
    fixture.rotate(&[json!({"kty": "OKP", "crv": "Ed25519"})]);
    assert_eq!(fixture.verify(&by_next), Err(JwtError::Key), "no key of the set can be used");
    fixture.rotate(&[next.jwk()]);
    assert!(fixture.verify(&by_next).is_ok());
    fixture.rotate(&[]);
    assert_eq!(fixture.verify(&by_next), Err(JwtError::Key), "all keys are revoked");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_empty_or_missing_admits_nobody_after_ten_seconds() {
    let issuer = Issuer::new("1");
    let token = issuer.issue(&mixer());
    let fixture = Fixture::of(&issuer);
    for is_missing in [false, true] {
        let clear = || {
            if is_missing {
                fs::remove_file(fixture.directory.path().join("jwks.json")).unwrap()
            } else {
                fixture.replace("")
            }
        };
        clear();
        fixture.verifier.reload();
        tokio::time::advance(Duration::from_secs(9)).await;
        fixture.verifier.reload();
        assert!(fixture.verify(&token).is_ok(), "it is being written");
        fixture.rotate(&[issuer.jwk()]);
        clear();
        fixture.verifier.reload();
        tokio::time::advance(Duration::from_secs(9)).await;
        fixture.verifier.reload();
        assert!(fixture.verify(&token).is_ok(), "it was there in the meantime");
        tokio::time::advance(Duration::from_secs(1)).await;
        fixture.verifier.reload();
        assert_eq!(fixture.verify(&token), Err(JwtError::Key), "missing: {is_missing}");
        fixture.rotate(&[issuer.jwk()]);
        assert!(fixture.verify(&token).is_ok());
    }
}

#[test]
fn a_server_does_not_start_without_keys() {
    let directory = tempfile::tempdir().unwrap();
    let error = JwtVerifier::load(JwtOptions::new(write(&directory, &[]))).unwrap_err();
    assert!(matches!(error, JwksError::Empty { .. }), "{error}");
}

/// Returns a token with the signature of another one.
fn forged(token: &str, number: usize) -> String {
    let (_, signature) = token.rsplit_once('.').unwrap();
    let claims = with("sub", json!(format!("forged {number}")));
    format!("{}.{signature}", unsigned(&json!({ "alg": "ES256", "kid": "1" }), &claims))
}

#[test]
fn a_connection_shows_a_limited_number_of_forged_tokens_and_each_is_verified_once() {
    let issuer = Issuer::new("1");
    let fixture = Fixture::of(&issuer);
    let known = issuer.issue(&mixer());
    let connection = RefusedTokens::default();
    assert!(fixture.verify_of(&connection, &known).is_ok());
    // A token that was refused before does not count again.
    for number in [0, 0, 0, 1, 2, 3, 4, 5, 6, 7] {
        let refused = fixture.verify_of(&connection, &forged(&known, number));
        assert_eq!(refused, Err(JwtError::Signature), "{number}");
    }
    assert_eq!(fixture.verify_of(&connection, &forged(&known, 8)), Err(JwtError::TooManyRefused));
    assert_eq!(fixture.verify_of(&connection, &forged(&known, 7)), Err(JwtError::Signature), "it is known");
    assert!(fixture.verify_of(&connection, &known).is_ok(), "it is known");
    let proxy = issuer.issue(&with("sub", json!("proxy")));
    assert_eq!(fixture.verify_of(&connection, &proxy), Err(JwtError::TooManyRefused));
    assert!(fixture.verify(&proxy).is_ok(), "on another connection");
}

#[test]
fn a_connection_that_showed_too_many_forged_tokens_refuses_none_of_another_connection() {
    let issuer = Issuer::new("1");
    let fixture = Fixture::of(&issuer);
    let exhausted = RefusedTokens::default();
    while exhausted.admits_another() {
        exhausted.count();
    }
    for round in 0..50 {
        let token = issuer.issue(&with("sub", json!(format!("client {round}"))));
        // All show it at the same time, so that most of them wait for one verification.
        std::thread::scope(|scope| {
            let refused = (0..4).map(|_| scope.spawn(|| fixture.verify_of(&exhausted, &token)));
            let accepted = (0..4).map(|_| scope.spawn(|| fixture.verify(&token)));
            let (refused, accepted): (Vec<_>, Vec<_>) = refused.zip(accepted).collect();
            for verified in refused {
                assert!(matches!(verified.join().unwrap(), Ok(_) | Err(JwtError::TooManyRefused)));
            }
            for verified in accepted {
                assert!(verified.join().unwrap().is_ok());
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_may_show_another_forged_token_every_second() {
    let connection = RefusedTokens::default();
    for _ in 0..8 {
        assert!(connection.admits_another());
        connection.count();
    }
    for _ in 0..3 {
        assert!(!connection.admits_another());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(connection.admits_another());
        connection.count();
    }
}

#[test]
fn forged_tokens_displace_no_accepted_one_and_their_number_is_bounded() {
    let issuer = Issuer::new("1");
    let fixture = Fixture::of(&issuer);
    let known = issuer.issue(&mixer());
    assert!(fixture.verify(&known).is_ok());
    let keys = fixture.verifier.keys.current();
    for number in 0..2 * MAX_VERIFIED {
        keys.refused.insert(Sha256::digest(number.to_be_bytes()).into(), ());
    }
    keys.refused.run_pending_tasks();
    assert!(keys.refused.entry_count() <= MAX_VERIFIED);
    assert!(keys.accepted.contains_key(&<[u8; 32]>::from(Sha256::digest(&known))));
}
