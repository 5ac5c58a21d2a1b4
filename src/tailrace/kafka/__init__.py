"""The Kafka listener: connections, dispatch, one handler module per family of APIs."""
