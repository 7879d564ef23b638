"""Spectral clustering of points: degrees, the model, and the normalized cut."""
