"""Types and values that every package uses. Imports no other package."""
