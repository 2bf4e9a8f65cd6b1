//! Texts that may keep a habit, and how often comments and documents still have each.

/// A part of a text, and why it may have a habit.
pub(super) const ALLOWED: [(&str, &str); 0] = [];

/// The number of times that comments and documents may have each habit. Lower a number when it falls.
pub(super) const COUNTS: [(&str, &str, usize); 16] = [
    ("comments", "anonymous actor", 379),
    ("comments", "bare verb", 595),
    ("comments", "clause for a noun", 1652),
    ("comments", "double negation", 12),
    ("comments", "front-loaded relative", 85),
    ("comments", "is to", 96),
    ("comments", "telling", 257),
    ("comments", "word of the dialect", 255),
    ("documents", "anonymous actor", 130),
    ("documents", "bare verb", 169),
    ("documents", "clause for a noun", 333),
    ("documents", "double negation", 2),
    ("documents", "front-loaded relative", 15),
    ("documents", "is to", 20),
    ("documents", "telling", 38),
    ("documents", "word of the dialect", 82),
];
