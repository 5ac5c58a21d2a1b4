"""The rules: topics, publish, fetch, producers, dedup, offsets, retention. No sockets; the clock is injected."""
