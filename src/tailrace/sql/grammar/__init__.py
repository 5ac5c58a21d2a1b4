"""The grammar of our statements: one module for each family."""
