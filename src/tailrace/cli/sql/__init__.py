"""`tailrace sql`: statements from a prompt, a flag, a file or a pipe, run by a server."""
