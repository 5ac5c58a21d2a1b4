"""Tools of Kafka's ecosystem against a real server: what went through is looked at, and the grid of tools is written."""
