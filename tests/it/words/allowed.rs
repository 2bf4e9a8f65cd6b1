//! Texts that may keep a habit, and how often comments and documents still have each.

/// A part of a text, and why it may have a habit.
pub(super) const ALLOWED: [(&str, &str); 0] = [];

/// The number of times that comments and documents may have each habit. Lower a number when it falls.
pub(super) const COUNTS: [(&str, &str, usize); 16] = [
    ("comments", "anonymous actor", 54),
    ("comments", "bare verb", 68),
    ("comments", "clause for a noun", 130),
    ("comments", "double negation", 3),
    ("comments", "front-loaded relative", 4),
    ("comments", "is to", 3),
    ("comments", "telling", 26),
    ("comments", "word of the dialect", 23),
    ("documents", "anonymous actor", 55),
    ("documents", "bare verb", 61),
    ("documents", "clause for a noun", 124),
    ("documents", "double negation", 2),
    ("documents", "front-loaded relative", 7),
    ("documents", "is to", 8),
    ("documents", "telling", 24),
    ("documents", "word of the dialect", 29),
];

/// The identifiers that may have a word which others may not, and why.
pub(super) const IDENTIFIERS: [(&str, &str); 2] = [
    ("RouteWithheld", "the name of a finding, which metrics and alerts of users have"),
    ("TakenOff", "a step in the lines of the log, for which users may search"),
];
