"""The `Store` contract and its backends."""
