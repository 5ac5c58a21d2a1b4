"""The documents say what the code says."""
