"""The effect of a hostile tenant on others: see `python -m bench.hostile`."""
