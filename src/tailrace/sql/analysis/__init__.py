"""What a statement means: names and types resolved as PostgreSQL resolves them. Knows no engine."""
