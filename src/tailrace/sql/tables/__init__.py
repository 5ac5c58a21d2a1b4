"""Embedded tables: rows in SQLite, with every change in the log first."""
