//! The embedded PostgreSQL: a private cluster in a data directory.
