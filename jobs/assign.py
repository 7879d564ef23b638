"""Label every row: ./spark-submit.sh jobs/assign.py --config conf/demo.toml."""

import sys

from kernelcoreset.jobs.cli import assign_main as main

if __name__ == "__main__":
    sys.exit(main())
