"""What a second worker brings: `python -m bench.scaling`."""
