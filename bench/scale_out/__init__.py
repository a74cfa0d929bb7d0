"""A worker with an empty disk is added: how long until it has its tasks, by replay and by snapshot."""
