#!/usr/bin/env bash
# Sets up .venv where needed, then lint, types and tests. Arguments go to pytest: ./tests/run.sh tests/unit -k kernel
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=environment.sh
. ./environment.sh
prepare_environment dev
prepare_java

# numba's cache on disk does not notice a change in a file that another compiled file calls: start from none.
find kernelcoreset -name '*.nb[ic]' -delete
export NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

# Compile once, into the cache on disk, before several test processes would all do it at the same time; meanwhile lint
# and types.
.venv/bin/python tests/compile_once.py &
compiling=$!
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
wait $compiling
# A file stays in one process: its tests may share something costly, such as a cluster.
exec .venv/bin/python -m pytest --numprocesses=2 --dist=loadfile --durations=15 "$@"
