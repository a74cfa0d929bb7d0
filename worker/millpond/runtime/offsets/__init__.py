"""Committed offsets: their metadata, and whether an answer about them is up to date."""
