"""Where a snapshot ends: an offset for each changelog partition, between commits, where nothing is missing."""
