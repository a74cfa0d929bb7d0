"""One reconcile pass over one StreamApp: observe, decide, save the status, apply."""
