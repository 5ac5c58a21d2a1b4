"""Tables of PostgreSQL as sources, beside Debezium."""
