"""`millpond reset`: what there is of an application, what a reset changes, and the changes."""
