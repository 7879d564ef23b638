"""Cluster the nodes of a graph: ./spark-submit.sh jobs/graph.py --config FILE.toml, with a section [graph]."""

import sys

from kernelcoreset.jobs.cli import graph_main as main

if __name__ == "__main__":
    sys.exit(main())
