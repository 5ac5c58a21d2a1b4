"""One suite for every store: whatever passes it may stand behind the broker."""
