"""Compiled loops over tiles of points."""
