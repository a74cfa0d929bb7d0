"""The application whose every record is checked, as an image."""
