"""Alerts on card payments, with limits from a database by change data capture."""
