"""The jobs on Spark, step by step."""
