//! Texts that may keep a habit, and how often comments and documents still have each.

/// A part of a text, and why it may have a habit.
pub(super) const ALLOWED: [(&str, &str); 0] = [];

/// The number of times that comments and documents may have each habit. Lower a number when it falls.
pub(super) const COUNTS: [(&str, &str, usize); 16] = [
    ("comments", "anonymous actor", 54),
    ("comments", "bare verb", 69),
    ("comments", "clause for a noun", 131),
    ("comments", "double negation", 3),
    ("comments", "front-loaded relative", 4),
    ("comments", "is to", 5),
    ("comments", "telling", 26),
    ("comments", "word of the dialect", 25),
    ("documents", "anonymous actor", 56),
    ("documents", "bare verb", 63),
    ("documents", "clause for a noun", 128),
    ("documents", "double negation", 2),
    ("documents", "front-loaded relative", 7),
    ("documents", "is to", 8),
    ("documents", "telling", 24),
    ("documents", "word of the dialect", 31),
];
