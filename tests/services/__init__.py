"""Tests with real servers, which `./tests/run.sh --services` runs."""
