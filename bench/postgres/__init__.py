"""Tailrace's tables beside those of PostgreSQL."""
