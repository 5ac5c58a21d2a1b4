"""Clients of the server under test, each in a thread of its own: they ask, and record what they were told."""
