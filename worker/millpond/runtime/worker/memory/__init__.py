"""What a worker process does for its memory: malloc arenas, and the collector of Python objects."""
