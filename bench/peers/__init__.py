"""The servers that are compared, each in its own process and folder."""
