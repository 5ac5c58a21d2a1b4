"""Statements: rows into tables, queries over topics."""
