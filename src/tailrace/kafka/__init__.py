"""The Kafka listener: connections, dispatch, and a handler module for each family of APIs."""
