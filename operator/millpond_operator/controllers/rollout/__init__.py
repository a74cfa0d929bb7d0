"""Rollout decisions, conditions and status of one application: pure functions of wanted and observed state."""
