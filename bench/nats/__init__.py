"""Tailrace beside NATS JetStream: the same work, each with its own client, in turn."""
