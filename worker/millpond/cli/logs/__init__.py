"""`millpond logs`: the logs of an application's workers."""
