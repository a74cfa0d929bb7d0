"""The controllers that the tests' clusters have."""
