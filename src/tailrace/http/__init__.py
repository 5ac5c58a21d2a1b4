"""The HTTP surface: REST endpoints, Server-Sent Events, WebSockets, metrics and the OpenAPI document."""
