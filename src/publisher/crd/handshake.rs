//! Which addresses are in the release handshake of the crd mode.

use std::net::{IpAddr, Ipv4Addr};

use crate::model::crd::{CrdFields, ReleaseMark};
use crate::net::cidr::Cidr;

/// The address that a usage query marks. It is in no pool (`docs/cilium.md`, Ping).
pub const QUERY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The addresses of `cidr` that the agent gives to no pod, because they are in a release handshake.
pub(super) fn in_handshake(fields: &CrdFields, cidr: Cidr) -> impl Iterator<Item = IpAddr> + '_ {
    cidr.entries_in(&fields.marks)
        .filter(|(_, mark)| **mark != ReleaseMark::DoNotRelease)
        .map(|(address, _)| *address)
}
