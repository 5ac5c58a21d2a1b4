"""HTTP and WebSocket surface, OpenAPI, a page for whoever comes by browser."""
