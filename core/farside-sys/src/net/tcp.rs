//! Streams between machines.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Maximum number of connections that wait to be accepted, if the system allows it.
const BACKLOG: i32 = 4096;

/// Listens on a port of all addresses of this machine; port 0 selects any free port. Accepting a
/// connection never blocks. Connections that ended a moment ago do not occupy the port.
///
/// # Errors
/// `AddrInUse` when another process listens on the port; otherwise the operating system's error.
pub fn listen_everywhere(port: u16) -> std::io::Result<TcpListener> {
    match listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        }
        listener => listener,
    }
}

/// Listens on one address; port 0 selects any free port. Otherwise as [`listen_everywhere`].
///
/// # Errors
/// `AddrInUse` when another process listens on the port; otherwise the operating system's error.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Prepares a stream for small messages between programs that must notice each other's end. Written
/// bytes leave at once, and nothing blocks. If the other machine is switched off or cut off, the
/// stream fails after about `silence_max`. A slow process does not fail it, because its machine
/// answers.
///
/// # Errors
/// The operating system's error.
pub fn configure(stream: &TcpStream, silence_max: Duration) -> std::io::Result<()> {
    const PROBES: u32 = 3;
    let pause = Duration::from_secs((silence_max.as_secs() / u64::from(PROBES + 1)).max(1));
    stream.set_nonblocking(true)?;
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_tcp_keepidle(stream, pause)?;
    sockopt::set_tcp_keepintvl(stream, pause)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    // Keepalive sends no probes while sent data is unacknowledged; this timeout covers that case.
    sockopt::set_tcp_user_timeout(stream, u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// The addresses of this machine's network devices that are up, in the system's order.
///
/// # Errors
/// The operating system's error.
pub fn own_addresses() -> std::io::Result<Vec<IpAddr>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the system either fails or writes one pointer to the variable, to a list that is
    // freed below.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: not null, so an entry of the list. It lives until the list is freed, and nothing
        // else refers to it.
        let entry = unsafe { &*next };
        if entry.ifa_flags & libc::IFF_UP as u32 != 0 {
            // SAFETY: the entry's address is null or a socket address of the family that it names.
            addresses.extend(unsafe { ip_address(entry.ifa_addr) });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, is freed once, and no borrow from it remains.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// # Safety
/// `address` is null or points to a socket address of the length that its family requires.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so by the contract a socket address, and each begins with its family.
    let family = i32::from(unsafe { (*address).sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: by the contract this is an address of this family; it may lie unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: by the contract this is an address of this family; it may lie unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;
    use crate::net::{Interest, wait_ready};

    #[test]
    fn a_listener_is_reached_at_the_loopback_addresses() {
        let listener = listen_everywhere(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let near = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let interest = Interest { fd: listener.as_fd(), writable: false };
        assert!(wait_ready(&[interest], Some(farside_testbed::deadline())).unwrap()[0]);
        let (far, _) = listener.accept().unwrap();
        configure(&near, Duration::from_secs(5)).unwrap();
        configure(&far, Duration::from_secs(5)).unwrap();
        assert_eq!((&far).read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(sockopt::tcp_user_timeout(&far).unwrap(), 5000);
        (&near).write_all(b"x").unwrap();
    }

    #[test]
    fn a_port_is_taken_once_and_free_again_at_once() {
        let listener = listen_everywhere(0).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listen_everywhere(port).unwrap_err().kind(), ErrorKind::AddrInUse);
        // A connection that the listener's side closes first would otherwise occupy the port for a
        // minute.
        let near = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        drop(listener);
        drop(near);
        listen_everywhere(port).unwrap();
    }

    #[test]
    fn the_loopback_device_is_one_of_this_machines() {
        assert!(own_addresses().unwrap().contains(&Ipv4Addr::LOCALHOST.into()));
    }
}
