"""What a task commits beside its positions: the metadata of offsets, and how recent an answer about them is."""
