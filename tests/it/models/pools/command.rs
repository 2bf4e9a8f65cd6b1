//! The random commands.

use super::super::Phase;

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    PodsCome(usize),
    PodsGo(usize),
    /// A CIDR is added to the entry of a Cilium pool.
    Gives(usize),
    /// A CIDR is removed, in one write with a usage query or without.
    Removes {
        asks: bool,
    },
    /// All CIDRs of a Cilium pool are removed, and the entry stays or is removed too.
    Empties {
        of: usize,
        stays: bool,
        asks: bool,
    },
    /// A CIDR moves to another name.
    Moves,
    Asks,
    Touches,
    LosesCiliumNode,
    Stops,
    Starts,
    RestoresOne,
    RestoresAll,
}

impl Command {
    pub(super) fn draw(phase: Phase, waits_for: Option<usize>, rng: &mut fastrand::Rng) -> Self {
        let n = rng.u32(..100);
        match (phase, n) {
            (Phase::Down, 0..50) => return Self::Starts,
            (Phase::Waiting, 0..50) => return Self::Gives(0),
            (Phase::Restoring, 0..40) => return Self::RestoresOne,
            (Phase::Restoring, 40..60) => return Self::RestoresAll,
            (Phase::Running, 0..30) => return Self::PodsCome(rng.usize(1..8)),
            (Phase::Running, 30..45) => return Self::PodsGo(rng.usize(1..8)),
            (Phase::Running, 45..48) => return Self::Touches,
            (Phase::Running, 48..51) => return Self::LosesCiliumNode,
            (Phase::Running, 51..58) | (Phase::Waiting | Phase::Restoring, 95..) => return Self::Stops,
            _ => {}
        }
        let any = usize::from(rng.u8(..3) == 0);
        let of = waits_for.filter(|_| rng.bool()).unwrap_or(any);
        match rng.u32(..20) {
            0..11 => Self::Gives(of),
            11..14 => Self::Removes { asks: rng.bool() },
            14..16 => Self::Empties { of, stays: rng.bool(), asks: rng.bool() },
            16 => Self::Moves,
            _ => Self::Asks,
        }
    }
}
