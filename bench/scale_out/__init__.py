"""The time until an added worker with an empty disk has its tasks, by replay and by snapshot."""
