"""Queues: the consumers of a group share the records of topics, each record to one of them."""
