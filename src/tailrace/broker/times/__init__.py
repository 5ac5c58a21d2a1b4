"""The oldest timestamps of records, so that queries with an upper time bound need not read everything."""
