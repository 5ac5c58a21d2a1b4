"""EXPLAIN: how a statement runs, in plain words, and with ANALYZE how long each step takes."""
