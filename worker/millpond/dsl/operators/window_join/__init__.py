"""The bodies of the processors that join two streams by key and time."""
