"""Fuzzing of everything that reads bytes from outside: a short run in `make test`, a long one in `make fuzz`."""
