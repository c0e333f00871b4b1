"""Bodies of records that are compressed, sealed, or both."""
