"""The ways in: messages and raw batches, admitted, looked at for duplicates, and placed in partitions."""
