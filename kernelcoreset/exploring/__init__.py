"""A first look at data: which clusters each method finds, and which of them are worth having."""
