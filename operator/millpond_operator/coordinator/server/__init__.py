"""The HTTP server around the engines: long polls, tokens, limits, metrics, and the store of the assignment."""
