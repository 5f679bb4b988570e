//! `farside inspect serve`.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use farside_viewer::page::{Options, Page};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::TargetArguments;
use crate::error::ShowError;

/// Show running jobs in a browser, until SIGINT or SIGTERM
///
/// The address that this command prints has a secret behind `#`. Keep it to yourself: whoever has
/// it sees what your jobs show. Nothing is encrypted, so from another machine, reach the server by
/// ssh.
#[derive(Debug, Args)]
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

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Result<(), ShowError> {
    let Arguments { target, listen, page_token, hosts, json } = arguments;
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(ShowError::Signals)?;
    let mut options = Options::default();
    if let Some(path) = page_token {
        options = options.token(farside_viewer::first_secret(path).map_err(farside_viewer::InspectError::from)?);
    }
    let page = Page::start_with(*listen, target.target(), hosts, options);
    let page = page.map_err(|cause| ShowError::Page { address: *listen, cause })?;
    let text = if *json {
        format!("{}\n", serde_json::json!({ "url": page.url(), "address": page.address().to_string() }))
    } else {
        invitation(&page)
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(ShowError::Output)?;
    signals.forever().next();
    Ok(())
}

/// Serves the page for a job, and says where on the standard error.
pub(crate) fn with_job(address: SocketAddr, job: &str) -> Result<Page, ShowError> {
    if std::env::var_os("FARSIDE_INSPECT").is_some_and(|setting| setting == "off") {
        return Err(farside_inspect::ExposeError::Off.into());
    }
    let page = Page::start(address, job, &[]).map_err(|cause| ShowError::Page { address, cause })?;
    eprint!("farside: {}", invitation(&page));
    Ok(page)
}

/// Says where the page is.
fn invitation(page: &Page) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    invitation_from(&page.url(), page.address(), host.trim())
}

/// The same, for a page on a machine of this name. A tunnel leads to the address at which the page
/// listens, as the machine itself reaches it.
fn invitation_from(url: &str, address: SocketAddr, host: &str) -> String {
    let port = address.port();
    let mut reached = address;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => reached.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => reached.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let tunnel = format!("ssh -L {port}:{reached} {host}");
    if address.ip().is_loopback() {
        return format!("{url}\nfrom another machine, the same address after: {tunnel}\n");
    }
    let token = url.split_once('#').map_or("", |(_, token)| token);
    format!(
        "{url}\nnothing is encrypted: who can read this network's traffic can look, too\n\
         encrypted from another machine: http://localhost:{port}/#{token} after: {tunnel}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_leads_to_where_the_page_listens() {
        for (listens, leads) in [
            ("127.0.0.1:81", "ssh -L 81:127.0.0.1:81 node17"),
            ("127.0.0.9:81", "ssh -L 81:127.0.0.9:81 node17"),
            ("[::1]:81", "ssh -L 81:[::1]:81 node17"),
            ("0.0.0.0:81", "ssh -L 81:127.0.0.1:81 node17"),
            ("[::]:81", "ssh -L 81:[::1]:81 node17"),
            ("10.1.2.3:81", "ssh -L 81:10.1.2.3:81 node17"),
        ] {
            let address: SocketAddr = listens.parse().unwrap();
            let said = invitation_from("http://somewhere/#secret", address, "node17");
            assert_eq!(said.lines().next(), Some("http://somewhere/#secret"));
            assert!(said.ends_with(&format!(" after: {leads}\n")), "{listens}: {said}");
            let is_open = said.contains("nothing is encrypted") && said.contains("http://localhost:81/#secret");
            assert_eq!(is_open, !address.ip().is_loopback(), "{said}");
        }
    }
}
