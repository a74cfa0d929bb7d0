"""The worker and its parts: start, loop, recovery, end."""
