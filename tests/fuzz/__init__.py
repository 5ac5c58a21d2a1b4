"""Fuzzing of everything that reads bytes from outside: briefly in `make test`, at length in `make fuzz`."""
