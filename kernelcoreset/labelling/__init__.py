"""Clusters in, a label for every point out."""
