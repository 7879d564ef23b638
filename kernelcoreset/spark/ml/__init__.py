"""The pyspark.ml API."""
