"""The benchmarks' own tests: a figure is worth what its measurement is."""
