"""TLS of the listeners: the certificate of the server, handshakes within bounds, and names of clients' certificates."""
