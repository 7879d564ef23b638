"""From points to a coreset: a small weighted subset that keeps the clustering cost of every set of centers."""
