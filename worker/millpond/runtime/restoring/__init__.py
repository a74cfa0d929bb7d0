"""Restoring of stores: from changelogs, from snapshots, and of global stores from their topics."""
