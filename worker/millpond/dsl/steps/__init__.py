"""Steps of a stream that keep no state."""
