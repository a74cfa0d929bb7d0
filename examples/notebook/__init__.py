"""A notebook that builds a topology and tries it on real data."""
