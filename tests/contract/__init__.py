"""One suite for every store: the broker can use whatever passes it."""
