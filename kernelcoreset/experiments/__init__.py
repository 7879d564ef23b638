"""The paper's experiments and more, on real data: `python -m kernelcoreset.experiments all --data DIR`."""
