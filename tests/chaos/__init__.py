"""Fault tests: what a folder holds after kills, power cuts, torn files, failing and full disks."""
