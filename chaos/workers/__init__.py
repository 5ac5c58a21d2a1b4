"""Clients of the server under test, each in a thread of its own: they make calls, and record the answers."""
