"""What must hold for all input, not for one example."""
