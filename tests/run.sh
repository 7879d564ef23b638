#!/usr/bin/env bash
# Sets up .venv if needed, then runs lint, types and tests.
#
#   ./tests/run.sh                          everything
#   ./tests/run.sh tests/unit -k kernel     arguments go to pytest
#   ./tests/run.sh --services               only the tests with real servers (tests/services); installs what they need
#   ./tests/run.sh --services --platforms   the same, and writes docs/platforms.md
#   ./tests/run.sh --versions               a short suite with other versions of the dependencies; writes docs/versions.md
#   ./tests/run.sh --versions lowest        one environment of that alone, and its row: lowest, pyspark-4.0, ..., newest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=environment.sh
. ./environment.sh
prepare_environment dev
prepare_java
export NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

if [ "${1:-}" = --versions ]; then
  shift
  exec .venv/bin/python tests/versions.py "$@"
fi

if [ "${1:-}" = --services ]; then
  shift
  prepare_environment services
  .venv/bin/python -m tests.java
  # Two processes: most tests wait for servers and for Java to start.
  exec .venv/bin/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder --durations=15 tests/services "$@"
fi

# Compile once, before several test processes do it at the same time, then keep the classes of Spark, so that each Java
# of the tests takes half the time to start; lint and types run meanwhile.
{ .venv/bin/python -m kernelcoreset.models.rehearsal >/dev/null && .venv/bin/python -m tests.java; } &
compiling=$!
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
wait $compiling
# A file stays in one process: its tests may share something costly, such as a cluster. The order is that of the folders:
# the long files of faults/ and spark/ come first, so that both processes end at nearly the same time.
exec .venv/bin/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder --durations=15 "$@"
