//! What the ledger keeps of the declaration of a pool, to compare it with others.
//!
//! Does not know what is taken, nor which blocks a pool has.

use std::collections::BTreeSet;

use crate::model::names::{PoolName, Uid};
use crate::model::pool::{Pool, Reservation};
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};

/// What is declared: by a pool, or by one that can't be read.
pub type Declaration<'a> = Result<&'a Pool, &'a Reservation>;

/// What is kept of a declaration to compare it with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declarer {
    pub(super) age: Age,
    pub(super) ranges: BTreeSet<(Cidr, Family)>,
}

/// Sorts the oldest first. Creation times have whole seconds: between equal ones any order will do that never changes.
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
