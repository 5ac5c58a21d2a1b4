"""Routes: which changes of tables go to which topics, from which snapshot on, and what the router has yet to do."""
