//! The part of a pool's declaration that the ledger keeps, to compare it with others.
//!
//! Does not know which ranges are taken, nor which blocks a pool has.

use std::collections::BTreeSet;

use crate::model::names::{PoolName, Uid};
use crate::model::pool::{Pool, Reservation};
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};

/// The declaration of a pool, or of one that can't be read.
pub type Declaration<'a> = Result<&'a Pool, &'a Reservation>;

/// The part of a declaration that is kept to compare it with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declarer {
    pub(super) age: Age,
    pub(super) ranges: BTreeSet<(Cidr, Family)>,
}

/// Sorts the oldest first. Creation times have whole seconds: between equal ones, any order that never changes will do.
pub(super) type Age = (Timestamp, Uid, PoolName);

impl Declarer {
    pub(super) fn of(declaration: Declaration<'_>) -> Self {
        match declaration {
            Ok(pool) => Self {
                age: (pool.created, pool.uid.clone(), pool.name.clone()),
                ranges: pool
                    .families
                    .iter()
                    .flat_map(|(family, ranges)| ranges.cidrs.keys().map(|range| (*range, *family)))
                    .collect(),
            },
            Err(reserved) => Self {
                age: (reserved.created, reserved.uid.clone(), reserved.name.clone()),
                ranges: reserved.cidrs.iter().map(|range| (*range, range.family())).collect(),
            },
        }
    }
}
