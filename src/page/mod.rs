//! Views as pages for a browser.
//!
//! It gets values of `view`, and does not know the world, who asks for a page, or where it is sent.

pub mod map;
