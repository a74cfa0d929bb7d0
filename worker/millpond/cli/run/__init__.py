"""`millpond run`: one worker in this process, its signals and its display."""
