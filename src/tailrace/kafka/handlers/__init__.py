"""What the server answers, one module per family of APIs. `kafka/dispatch.py` says what a handler is."""
