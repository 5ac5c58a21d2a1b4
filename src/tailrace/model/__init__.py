"""Names and values that every room uses. Imports no other room."""
