"""Transactions: their coordinator, their rules, and how they end."""
