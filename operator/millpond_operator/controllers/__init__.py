"""What keeps StreamApps as they are wanted: the work queue, reconciliation and what watches over both."""
