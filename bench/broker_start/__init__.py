"""The start of the embedded broker."""
