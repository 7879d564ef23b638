"""From columns of a table to points: scaled numbers, categories, logarithms and missing values."""
