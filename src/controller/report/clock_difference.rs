//! The finding that the clock of this machine differs from the API server.
//!
//! Nothing depends on that clock as long as the answers of the server have a date. But another program on the machine
//! may, and a wrong clock of the server itself looks the same.

use jiff::SignedDuration;

use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::ObjectKind;

/// The difference from which it is a finding. Clocks that follow NTP differ by less than a second.
const DIFFERS_FROM: SignedDuration = SignedDuration::from_mins(1);

/// The difference below which the finding is resolved, so that a clock near the limit is not reported again and again.
const RESOLVED_BELOW: SignedDuration = SignedDuration::from_secs(30);

/// The finding about a clock that is ahead by so much, after the finding before. `None` as long as nothing is known.
pub(super) fn finding(ahead: Option<SignedDuration>, before: Option<&Finding>) -> Option<Finding> {
    let ahead = ahead?;
    match before {
        // In the words of before: the difference changes all the time, and the metric shows it.
        Some(before) if ahead.abs() >= RESOLVED_BELOW => Some(before.clone()),
        None if ahead.abs() > DIFFERS_FROM => {
            let direction = if ahead.is_positive() { "ahead of" } else { "behind" };
            let message = format!(
                "its clock is {} s {direction} the API server: let both follow NTP; blocks and claims use the time \
                 of the API server",
                ahead.abs().as_secs()
            );
            Some(Finding::new(FindingKind::ClockDiffers, ObjectKind::Machine, "of this replica", message))
        }
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_reported_from_a_minute_on_and_until_it_is_near_again() {
        let seconds = |seconds| Some(SignedDuration::from_secs(seconds));
        assert_eq!(finding(None, None), None);
        for (sign, direction) in [(1, "61 s ahead of the API server"), (-1, "61 s behind the API server")] {
            assert_eq!(finding(seconds(sign * 60), None), None);
            let found = finding(seconds(sign * 61), None).expect("it is reported");
            assert!(found.message.contains(direction), "{}", found.message);
            assert_eq!(finding(seconds(sign * 3600), Some(&found)).as_ref(), Some(&found));
            assert_eq!(finding(seconds(sign * 30), Some(&found)).as_ref(), Some(&found));
            assert_eq!(finding(seconds(sign * 29), Some(&found)), None);
        }
    }
}
