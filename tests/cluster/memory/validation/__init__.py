"""Validation and defaults of built-in kinds and custom resources."""
