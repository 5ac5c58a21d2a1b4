"""The pipeline: routed changes, and topics read and written by Spark."""
