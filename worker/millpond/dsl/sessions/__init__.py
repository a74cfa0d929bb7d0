"""Windows that end when a key is inactive, and the operators over them."""
