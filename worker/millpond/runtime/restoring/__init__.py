"""Stores become current: from changelogs, from snapshots, and global stores from their topics."""
