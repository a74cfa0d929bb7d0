"""Visits of a site, and which advertisements were clicked."""
