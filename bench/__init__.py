"""Benchmarks, each beside the simplest program that does the same or beside another product: `make bench`."""
