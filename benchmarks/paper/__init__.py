"""The paper's experiments and more, on real data: `python -m benchmarks.paper all --data DIR`."""
