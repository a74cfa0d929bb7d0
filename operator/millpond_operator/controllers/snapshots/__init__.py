"""Snapshots of state: StateBootstraps, their schedules, and the Jobs that create them."""
