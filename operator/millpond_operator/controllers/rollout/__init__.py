"""Rollout decisions, conditions and status of one application: pure functions of what is wanted and observed."""
