"""Follow a stream, micro-batch by micro-batch: ./spark-submit.sh jobs/stream.py --config conf/stream.toml."""

import sys

from kernelcoreset.jobs.cli import stream_main as main

if __name__ == "__main__":
    sys.exit(main())
