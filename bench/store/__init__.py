"""The store without a network: appends, fetches, opening a folder."""
