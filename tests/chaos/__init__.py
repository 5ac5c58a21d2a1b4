"""Faults: what is left in a folder after kills, power cuts, torn files, failing and full disks."""
