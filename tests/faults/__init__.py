"""Tests on a real cluster of processes, some of which are ended on purpose."""
