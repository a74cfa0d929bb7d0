"""The speed-up by a second worker: `python -m bench.scaling`."""
