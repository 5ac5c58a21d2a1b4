"""Analyzed expressions evaluated row by row in Python, with PostgreSQL's meaning."""
