"""The command line's own rules, without a server."""
