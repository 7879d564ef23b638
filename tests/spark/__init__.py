"""Tests on a real Spark: classic in this process, Spark Connect in one of its own."""
