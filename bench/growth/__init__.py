"""How costs grow: with topics, partitions, groups, connections, the length of the log, routes."""
