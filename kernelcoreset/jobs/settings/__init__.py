"""The settings of a job, read from TOML and checked before any work starts."""
