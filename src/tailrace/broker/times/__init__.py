"""How old records are at most, so that queries with an upper bound of time need not read the others."""
