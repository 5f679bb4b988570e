//! `farside inspect serve`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::TargetArguments;
use crate::error::CliError;

/// Show running jobs in a browser, until SIGINT or SIGTERM
///
/// The address that this command prints has a secret behind `#`. Keep it to yourself: whoever has
/// it sees what your jobs show. Nothing is encrypted, so from another machine, reach the server by
/// ssh.
#[derive(Debug, Args)]
#[cfg_attr(not(feature = "page"), allow(dead_code, reason = "the command says that it has no page"))]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Where to listen. Port 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The file whose first secret is the token of the page, as `farside inspect token` makes it.
    /// Pages that are open go on when the command is started again with the same file and address
    #[arg(long, value_name = "FILE")]
    page_token: Option<PathBuf>,
    /// A further name by which browsers reach the server. May be given several times
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

#[cfg(not(feature = "page"))]
pub(super) fn run(_: &Arguments, _: &mut impl Write) -> Result<(), CliError> {
    Err(CliError::NoPage)
}

#[cfg(feature = "page")]
pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Result<(), CliError> {
    use farside_inspect::page::{Options, Page};
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let Arguments { target, listen, page_token, hosts, json } = arguments;
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CliError::Signals)?;
    let mut options = Options::default();
    if let Some(path) = page_token {
        options = options.token(farside_inspect::first_secret(path).map_err(farside_inspect::InspectError::from)?);
    }
    let page = Page::start_with(*listen, target.target(), hosts, options);
    let page = page.map_err(|cause| CliError::Page { address: *listen, cause })?;
    let text = if *json {
        format!("{}\n", serde_json::json!({ "url": page.url(), "address": page.address().to_string() }))
    } else {
        invitation(&page)
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)?;
    signals.forever().next();
    Ok(())
}

/// A page that is served while a job runs.
#[cfg(feature = "page")]
pub(crate) type Served = farside_inspect::page::Page;
#[cfg(not(feature = "page"))]
pub(crate) type Served = std::convert::Infallible;

/// Serves the page for a job, and says where on the standard error.
#[cfg(feature = "page")]
pub(crate) fn beside_job(address: SocketAddr, job: &impl std::fmt::Display) -> Result<Served, CliError> {
    let page = Served::start(address, &job.to_string(), &[]).map_err(|cause| CliError::Page { address, cause })?;
    eprint!("farside: {}", invitation(&page));
    Ok(page)
}

#[cfg(not(feature = "page"))]
pub(crate) fn beside_job(_: SocketAddr, _: &impl std::fmt::Display) -> Result<Served, CliError> {
    Err(CliError::NoPage)
}

/// Says where the page is.
#[cfg(feature = "page")]
fn invitation(page: &Served) -> String {
    let (url, port) = (page.url(), page.address().port());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    if page.address().ip().is_loopback() {
        format!("{url}\nfrom another machine, the same address after: ssh -L {port}:127.0.0.1:{port} {host}\n")
    } else {
        format!("{url}\nnothing is encrypted: who can read this network's traffic can look, too\n")
    }
}
