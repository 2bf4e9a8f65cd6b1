//! Texts that may keep a habit, and how often comments and documents still have each.

/// A part of a text, and why it may have a habit.
pub(super) const ALLOWED: [(&str, &str); 0] = [];

/// The number of times that comments and documents may have each habit. Lower a number when it falls.
pub(super) const COUNTS: [(&str, &str, usize); 16] = [
    ("comments", "anonymous actor", 455),
    ("comments", "bare verb", 608),
    ("comments", "clause for a noun", 1665),
    ("comments", "double negation", 12),
    ("comments", "front-loaded relative", 86),
    ("comments", "is to", 97),
    ("comments", "telling", 272),
    ("comments", "word of the dialect", 257),
    ("documents", "anonymous actor", 138),
    ("documents", "bare verb", 170),
    ("documents", "clause for a noun", 334),
    ("documents", "double negation", 2),
    ("documents", "front-loaded relative", 15),
    ("documents", "is to", 20),
    ("documents", "telling", 40),
    ("documents", "word of the dialect", 82),
];
