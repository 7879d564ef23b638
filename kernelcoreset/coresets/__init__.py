"""From points to a coreset: a small weighted subset that preserves the clustering cost of every set of centers."""
