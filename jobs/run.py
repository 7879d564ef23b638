"""Build, cluster and label in one: ./spark-submit.sh jobs/run.py --config conf/demo.toml."""

import sys

from kernelcoreset.jobs.cli import run_main as main

if __name__ == "__main__":
    sys.exit(main())
