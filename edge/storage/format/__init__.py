"""What bytes on disk mean: records, checksums, durability, and what can be wrong with them."""
