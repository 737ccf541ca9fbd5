use clap::Args;

use mixer_adapter_engine::RequestLimits;

/// Limits on single calls.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct RequestLimitArgs {
    /// Maximum number of requests in a report
    #[arg(long, value_name = "N", default_value_t = RequestLimits::default().requests_per_report)]
    max_requests_per_report: usize,

    /// Maximum number of attributes of one request
    #[arg(long, value_name = "N", default_value_t = RequestLimits::default().attributes_per_request)]
    max_attributes_per_request: usize,

    /// Maximum number of words in the dictionaries of a check or report
    #[arg(long, value_name = "N", default_value_t = RequestLimits::default().words)]
    max_words: usize,

    /// Maximum number of quotas in a check
    #[arg(long, value_name = "N", default_value_t = RequestLimits::default().quotas_per_check)]
    max_quotas_per_check: usize,

    /// Maximum number of instances in a call of a template, or built for a check or report
    #[arg(long, value_name = "N", default_value_t = RequestLimits::default().instances)]
    max_instances: usize,

    /// Maximum size in bytes of the decompressed attributes of a check or report, and of the instances built from them
    #[arg(long, value_name = "BYTES", default_value_t = RequestLimits::default().expanded_size)]
    max_expanded_size: usize,
}

impl RequestLimitArgs {
    pub(super) fn limits(&self) -> RequestLimits {
        RequestLimits::default()
            .requests_per_report(self.max_requests_per_report)
            .attributes_per_request(self.max_attributes_per_request)
            .words(self.max_words)
            .quotas_per_check(self.max_quotas_per_check)
            .instances(self.max_instances)
            .expanded_size(self.max_expanded_size)
    }
}
