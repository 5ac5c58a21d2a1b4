"""Small programs of frameworks of Python, each run by the interpreter of an environment of its own."""
