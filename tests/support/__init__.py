"""What several test rooms share: batches to write, stores to open, histories to judge, faults to inject."""
