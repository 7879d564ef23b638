"""Paths, URIs and atomic writes."""
