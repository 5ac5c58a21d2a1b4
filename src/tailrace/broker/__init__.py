"""The rules of topics, publishing, reading, groups, queues and transactions. No sockets; the clock is injected."""
