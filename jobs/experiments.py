"""The paper's experiments: python jobs/experiments.py all --data DIR [--quick]."""

import sys

from kernelcoreset.experiments.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
