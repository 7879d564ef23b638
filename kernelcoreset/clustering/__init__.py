"""From a coreset to clusters of its points."""
