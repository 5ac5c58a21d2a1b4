"""The HTTP surface without a socket."""
