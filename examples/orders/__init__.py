"""Orders with the data of their customers."""
