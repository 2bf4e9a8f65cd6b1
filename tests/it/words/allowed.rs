//! Texts that may keep a habit, and how often comments and documents still have each.

/// A part of a text, and why it may have a habit.
pub(super) const ALLOWED: [(&str, &str); 0] = [];

/// The number of times that comments and documents may have each habit. Lower a number when it falls.
pub(super) const COUNTS: [(&str, &str, usize); 16] = [
    ("comments", "anonymous actor", 466),
    ("comments", "bare verb", 618),
    ("comments", "clause for a noun", 1674),
    ("comments", "double negation", 12),
    ("comments", "front-loaded relative", 88),
    ("comments", "is to", 100),
    ("comments", "telling", 289),
    ("comments", "word of the dialect", 258),
    ("documents", "anonymous actor", 142),
    ("documents", "bare verb", 170),
    ("documents", "clause for a noun", 335),
    ("documents", "double negation", 2),
    ("documents", "front-loaded relative", 15),
    ("documents", "is to", 20),
    ("documents", "telling", 41),
    ("documents", "word of the dialect", 84),
];
