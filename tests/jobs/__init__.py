"""Tests of the jobs as processes: the submit script and the command line."""
