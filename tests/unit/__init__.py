"""One file a module of the package."""
