use std::{path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;

use super::{
    file,
    header::Header,
    oauth::OAuth,
    refreshing::{Cached, Refreshing},
    settings::{SourceSettings, TokenSettings},
};
use crate::remote::Options;
use mixer_adapter_core::adapter::ConfigErrors;
use mixer_adapter_net::tls;

/// The token of a handler's calls.
pub(super) struct Token {
    header: Header,
    source: Source,
    value: Refreshing<HeaderValue>,
}

enum Source {
    File { path: PathBuf, age: Duration },
    OAuth(Arc<OAuth>),
}

const TOKEN_PATH: &str = "connection.authentication.tls.token_path";

impl Token {
    /// Reads a token's file; a token from an OAuth server is fetched with the first call.
    pub(super) fn load(
        settings: TokenSettings,
        tls: &Arc<tls::Client>,
        options: &Options,
        runtime: &Handle,
    ) -> Result<Self, ConfigErrors> {
        let TokenSettings { header, source } = settings;
        let (source, first, rest) = match source {
            SourceSettings::File(path) => {
                let age = options.token_file_age;
                let content = file::read(TOKEN_PATH, &path)?;
                let value = from_file(&header, &content, age)?;
                (Source::File { path, age }, Some(value), age)
            }
            SourceSettings::OAuth(settings) => {
                let oauth = OAuth::new(settings, tls.clone(), header.clone(), options.access.clone())?;
                (Source::OAuth(Arc::new(oauth)), None, options.reconnect.longest)
            }
        };
        Ok(Self { header, source, value: Refreshing::new(runtime.clone(), rest, first) })
    }

    /// Returns the header of a call made now.
    pub(super) async fn header(&self) -> Result<(HeaderName, HeaderValue), Status> {
        let value = match &self.source {
            Source::File { path, age } => {
                let (header, path, age) = (&self.header, path, *age);
                self.value
                    .get(|| {
                        let (header, path) = (header.clone(), path.clone());
                        async move {
                            let content = file::read_blocking(TOKEN_PATH, path).await;
                            content
                                .and_then(|content| from_file(&header, &content, age))
                                .map_err(|error| Status::unavailable(error.to_string()))
                        }
                    })
                    .await
            }
            Source::OAuth(oauth) => self.value.get(|| oauth.clone().fetch()).await,
        };
        Ok((self.header.name.clone(), value?))
    }
}

/// A token from a file is used until the file is read again, and longer if that fails.
fn from_file(header: &Header, content: &[u8], age: Duration) -> Result<Cached<HeaderValue>, ConfigErrors> {
    let value =
        header.value(content, "").map_err(|error| ConfigErrors::single(TOKEN_PATH, error.to_string()))?;
    let again = Instant::now() + age;
    Ok(Cached { value, refresh_at: again, wait_at: again, good_until: None })
}
