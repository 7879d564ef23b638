"""What a job is without Spark: command line, settings, run record, exit codes."""
