"""Embedded tables: rows in SQLite, every change in the log first."""
