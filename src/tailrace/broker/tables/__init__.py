"""Tables: their definitions, and their changes on the way into the log."""
