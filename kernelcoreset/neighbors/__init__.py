"""Points to a graph of nearest neighbors, and how well clusters fit that graph."""
