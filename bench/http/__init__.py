"""The server over HTTP: SQL, messages, subscriptions."""
