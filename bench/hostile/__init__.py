"""What hostile neighbours cost the others: see `python -m bench.hostile`."""
