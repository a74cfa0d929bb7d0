"""Versioned key-value stores (KIP-889): the history of a key, and the store of histories."""
