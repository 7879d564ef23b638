"""The command `python -m benchmarks check`: a small version of every committed ratio beside the last committed one."""

from __future__ import annotations

import argparse
import sys

from benchmarks import check


def main() -> int:
    """Run one command of the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    checked = commands.add_parser("check", help=check.__doc__)
    checked.add_argument("--only", nargs="*", metavar="GROUP", help="measure these groups alone")
    checked.add_argument("--write", action="store_true", help="write the table to docs/results/check.md")
    given = parser.parse_args()
    return check.run(given.only, given.write)


if __name__ == "__main__":
    sys.exit(main())
