"""Subscriptions: the events of all topics that match a pattern, in the order of the log, for many subscribers at once."""
