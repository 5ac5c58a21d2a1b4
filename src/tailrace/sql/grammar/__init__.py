"""The grammar of the statements: one module for each family, and the token reader that they share."""
