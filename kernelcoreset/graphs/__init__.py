"""Clustering the nodes of a graph by normalized cut."""
