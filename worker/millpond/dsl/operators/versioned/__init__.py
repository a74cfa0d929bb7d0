"""What operators do with versioned tables (KIP-914): updates, lookups as of a time, and joins with a grace period."""
