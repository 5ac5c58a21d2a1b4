"""Producers."""
