"""One pass over one StreamApp: observe, decide, apply, write the status."""
