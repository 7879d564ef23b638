"""Build a coreset from all rows: ./spark-submit.sh jobs/build_coreset.py --config conf/demo.toml."""

import sys

from kernelcoreset.jobs.cli import build_coreset_main as main

if __name__ == "__main__":
    sys.exit(main())
