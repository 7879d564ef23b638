"""Spectral clustering of all rows: ./spark-submit.sh jobs/spectral.py --config conf/demo.toml."""

import sys

from kernelcoreset.jobs.cli import spectral_main as main

if __name__ == "__main__":
    sys.exit(main())
