"""Topics: how they are created, grown, altered, deleted and found."""
