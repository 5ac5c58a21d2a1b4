"""Captures changes of PostgreSQL databases into the log of a server."""
