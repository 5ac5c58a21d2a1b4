"""The main use of Tailrace, on a real server: `make demo`."""
