"""Window stores whose rows are in memory by key: those of stream-stream joins and of sliding windows."""
