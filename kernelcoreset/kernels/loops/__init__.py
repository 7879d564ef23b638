"""Compiled loops: over one tile of points (`tiles`, `center_tiles`, `user_tile`) and over all points (`passes`)."""
