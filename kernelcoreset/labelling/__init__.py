"""From clusters to a label for every point."""
