"""One module a client: what the scenarios ask for, said in that client's own calls."""
