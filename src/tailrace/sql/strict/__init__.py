"""Checks queries, writes and expressions against a grammar, because sqlglot, which parses them, accepts much that is not"
" SQL."""
