"""What is asked of the server in a run: topics, tables, and the workers on them."""
