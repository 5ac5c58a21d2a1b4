"""Reading: fetches that wait, committed records, consumers, and scans of whole topics."""
