"""The controllers of StreamApps: work queue, reconcile passes, rollouts, snapshots, the coordinator's host."""
