"""Tailrace: durable topics fed by table changes."""

__version__ = "0.1.0"
