"""Follow a table that grows, night by night: ./spark-submit.sh jobs/update.py --config conf/update.toml."""

import sys

from kernelcoreset.jobs.cli import update_main as main

if __name__ == "__main__":
    sys.exit(main())
