"""Side-by-side measurements, each with the table it wrote in docs/results."""
