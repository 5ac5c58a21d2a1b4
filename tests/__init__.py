"""Everything that shows that Tailrace keeps its promises."""
