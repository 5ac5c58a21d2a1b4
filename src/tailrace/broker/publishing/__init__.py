"""Writing: messages and raw batches are validated, deduplicated and appended to partitions."""
