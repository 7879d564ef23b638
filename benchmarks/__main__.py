"""The command `python -m benchmarks check`: measure a small version of every committed ratio and compare."""

from __future__ import annotations

import argparse
import sys

from benchmarks import check


def main() -> int:
    """Run one command of the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    checked = commands.add_parser(
        "check",
        help="compare small versions of the committed ratios with docs/results/check.md",
        description=check.__doc__.replace("%", "%%"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    checked.add_argument("--only", nargs="*", choices=check.GROUPS, help="measure these groups alone")
    checked.add_argument(
        "--write", action="store_true", help="write the table, or the rows of --only, to docs/results/check.md"
    )
    given = parser.parse_args()
    return check.run(given.only, given.write)


if __name__ == "__main__":
    sys.exit(main())
