"""The tasks that a worker holds, and what becomes of them."""
