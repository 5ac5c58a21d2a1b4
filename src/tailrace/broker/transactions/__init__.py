"""Transactions: who may write in one, how they end, and what readers see of them."""
