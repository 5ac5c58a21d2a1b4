"""Large values: kept beside the log, referred to by records, put back for readers, swept away in the end."""
