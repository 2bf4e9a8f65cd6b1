//! Texts that may keep a habit, and how often comments and documents still have each.

/// A part of a text, and why it may have a habit.
pub(super) const ALLOWED: [(&str, &str); 0] = [];

/// The number of times that comments and documents may have each habit. Lower a number when it falls.
pub(super) const COUNTS: [(&str, &str, usize); 16] = [
    ("comments", "anonymous actor", 279),
    ("comments", "bare verb", 404),
    ("comments", "clause for a noun", 1260),
    ("comments", "double negation", 10),
    ("comments", "front-loaded relative", 65),
    ("comments", "is to", 56),
    ("comments", "telling", 178),
    ("comments", "word of the dialect", 142),
    ("documents", "anonymous actor", 119),
    ("documents", "bare verb", 157),
    ("documents", "clause for a noun", 310),
    ("documents", "double negation", 2),
    ("documents", "front-loaded relative", 15),
    ("documents", "is to", 14),
    ("documents", "telling", 37),
    ("documents", "word of the dialect", 64),
];
