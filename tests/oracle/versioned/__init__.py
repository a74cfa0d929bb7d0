"""Cases of versioned tables and joins with a grace period, whose output is compared with the original's."""
