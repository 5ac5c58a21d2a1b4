"""HTTP and WebSocket surface, OpenAPI, the pages of the console."""
