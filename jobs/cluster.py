"""Find the clusters on a coreset: ./spark-submit.sh jobs/cluster.py --config conf/demo.toml."""

import sys

from kernelcoreset.jobs.cli import cluster_main as main

if __name__ == "__main__":
    sys.exit(main())
