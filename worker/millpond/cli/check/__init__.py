"""`millpond check`: what would not start, or be refused, found before anything runs."""
