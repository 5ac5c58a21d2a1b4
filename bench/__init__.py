"""Speed, measured side by side with the plainest thing that could do the same: `make bench`."""
