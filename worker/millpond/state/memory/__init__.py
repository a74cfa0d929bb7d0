"""The backend that keeps committed rows in memory."""
