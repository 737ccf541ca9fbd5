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
    name: HeaderName,
    source: Arc<Source>,
    value: Refreshing<HeaderValue>,
}

enum Source {
    File { header: Header, path: PathBuf, age: Duration },
    OAuth(Box<OAuth>),
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
        let name = header.name.clone();
        let (source, first, rest) = match source {
            SourceSettings::File(path) => {
                let age = options.token_file_age;
                let value = from_file(&header, &file::read(TOKEN_PATH, &path)?, age)?;
                (Source::File { header, path, age }, Some(value), age)
            }
            SourceSettings::OAuth(settings) => {
                let oauth = OAuth::new(settings, tls.clone(), header, options.access.clone())?;
                (Source::OAuth(Box::new(oauth)), None, options.reconnect.longest)
            }
        };
        Ok(Self { name, source: Arc::new(source), value: Refreshing::new(runtime.clone(), rest, first) })
    }

    /// Returns the header of a call made now.
    pub(super) async fn header(&self) -> Result<(HeaderName, HeaderValue), Status> {
        let value = self.value.get(|| self.source.clone().fetch()).await?;
        Ok((self.name.clone(), value))
    }
}

impl Source {
    async fn fetch(self: Arc<Self>) -> Result<Cached<HeaderValue>, Status> {
        match &*self {
            Self::File { header, path, age } => {
                let content = file::read_blocking(TOKEN_PATH, path.clone()).await;
                let value = content.and_then(|content| from_file(header, &content, *age));
                value.map_err(|error| Status::unavailable(error.to_string()))
            }
            Self::OAuth(oauth) => oauth.fetch().await,
        }
    }
}

/// A token from a file is used until the file is read again, and longer if that fails.
fn from_file(header: &Header, content: &[u8], age: Duration) -> Result<Cached<HeaderValue>, ConfigErrors> {
    let value =
        header.value(content, "").map_err(|error| ConfigErrors::single(TOKEN_PATH, error.to_string()))?;
    let again = Instant::now() + age;
    Ok(Cached { value, refresh_at: again, wait_at: again, good_until: None })
}
