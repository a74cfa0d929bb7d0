"""Applications that show what millpond is like. Each folder is one of them."""
