"""The application with much state, as an image."""
