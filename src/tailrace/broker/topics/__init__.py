"""Topics: made, grown, altered, deleted and found; and how long their records stay."""
