"""`millpond snapshot`: snapshots of an application's state, and reports of one that runs in a pod."""
