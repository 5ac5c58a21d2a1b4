"""The ways out: fetches with patience, consumers without a protocol, and whole topics for queries."""
