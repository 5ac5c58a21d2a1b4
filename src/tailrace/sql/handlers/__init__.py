"""What statements do: one module for each family."""
