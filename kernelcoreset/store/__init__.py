"""Coresets kept by partition key in a folder."""
