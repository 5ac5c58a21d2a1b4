"""Consumer groups: who is in, who owns what, and whose word counts. The rules only: no sockets, clock injected."""
