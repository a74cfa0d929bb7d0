"""Parts of the demos: data, a player, the workers, a display, and the expected output."""
