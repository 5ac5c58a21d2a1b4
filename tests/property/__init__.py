"""Random sequences of operations, compared with a plain model."""
