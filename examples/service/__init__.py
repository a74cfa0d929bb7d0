"""Accounts as a web service, with a worker inside."""
