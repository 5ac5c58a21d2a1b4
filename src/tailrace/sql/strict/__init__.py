"""Queries, writes and expressions held against a grammar: sqlglot, which makes their trees, lets much pass that is no SQL."""
