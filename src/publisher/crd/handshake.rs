//! The release handshake of the crd mode: which addresses are in it.

use std::net::IpAddr;

use crate::model::crd::{CrdFields, ReleaseMark};
use crate::net::cidr::Cidr;

/// The addresses of `cidr` that the agent hands to nobody because they are in a release handshake.
pub(super) fn in_handshake(fields: &CrdFields, cidr: Cidr) -> impl Iterator<Item = IpAddr> + '_ {
    cidr.entries_in(&fields.marks)
        .filter(|(_, mark)| **mark != ReleaseMark::DoNotRelease)
        .map(|(address, _)| *address)
}
