//! Limits on the adapters, files and hosts that the configurations of calls, sessions and servers may name.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use mixer_adapter_core::adapter::{Access, AccessLimits, HostList};
use mixer_adapter_host::{
    AccessPolicy,
    handler::{Adapters, quoted_list},
};

/// Adapters, files and hosts that configurations may name.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access of adapters")]
pub(super) struct AccessArgs {
    /// Adapters that calls and sessions may configure, separated by commas [default: all]
    #[arg(long, hide_short_help = true, value_name = "NAME", value_delimiter = ',')]
    adapters_in_calls: Vec<String>,

    /// Directory of files that configurations may name [default: none]
    ///
    /// For configurations of calls, sessions and servers
    #[arg(long, value_name = "DIR")]
    file_root: Option<PathBuf>,

    /// Hosts that configurations may name [default: none]
    ///
    /// For configurations of calls, sessions and servers. Such as lists.example.com, *.example.com, or IP addresses,
    /// separated by commas
    #[arg(long, value_name = "HOST", default_value = "", hide_default_value = true)]
    allow_hosts: HostList,

    /// Let configurations of servers (MCP and xDS) name any file and host, as files may
    #[arg(long, hide_short_help = true)]
    trust_sources: bool,
}

impl AccessArgs {
    /// The policy of these flags. What handlers fetch from the allowed hosts takes at most `fetched_bytes`.
    ///
    /// # Errors
    /// A directory that is not there, or an adapter that the program does not have.
    pub(super) fn policy(&self, adapters: &Adapters, fetched_bytes: usize) -> anyhow::Result<AccessPolicy> {
        let file_root = self.file_root.as_ref().map(|directory| {
            let root = absolute_directory(directory);
            root.with_context(|| format!("cannot use --file-root {}", directory.display()))
        });
        let limits = AccessLimits::default()
            .file_root(file_root.transpose()?)
            .hosts(self.allow_hosts.clone())
            .fetched_bytes(fetched_bytes);
        let mut policy = AccessPolicy::limited(limits);
        if self.trust_sources {
            policy.servers = Access::unrestricted();
        }
        if !self.adapters_in_calls.is_empty() {
            for name in &self.adapters_in_calls {
                anyhow::ensure!(
                    adapters.find(name).is_some(),
                    "--adapters-in-calls: there is no adapter `{name}`; adapters are {}",
                    quoted_list(adapters.iter().map(|adapter| adapter.name))
                );
            }
            policy.adapters_in_calls = Some(self.adapters_in_calls.iter().cloned().collect());
        }
        Ok(policy)
    }
}

fn absolute_directory(path: &Path) -> anyhow::Result<PathBuf> {
    let absolute = std::path::absolute(path).context("it is not a path")?;
    anyhow::ensure!(absolute.is_dir(), "it is not a directory");
    Ok(absolute)
}
