"""From a coreset to clusters."""
