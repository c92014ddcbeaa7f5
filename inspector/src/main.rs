//! The command rejoin.
fn main() {}
