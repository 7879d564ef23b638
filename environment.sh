# Sourced by tests/run.sh and spark-submit.sh: makes .venv at the project's root, once, and again when
# pyproject.toml changes. Usage: prepare_environment EXTRAS   (such as "dev" or "spark")

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "kernelcoreset needs Python 3.11 or newer; none was found. Install one, or set PYTHON to its path." >&2
  return 4
}

prepare_environment() {
  local extras=$1 stamp python
  stamp=".venv/installed-$extras-$(cksum <pyproject.toml | tr -d ' ')"
  [ -e "$stamp" ] && return
  python=$(find_python) || return
  if [ ! -x .venv/bin/python ]; then
    echo "Setting up .venv with $("$python" --version) ..." >&2
    "$python" -m venv .venv || {
      echo "Could not make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2
      return 4
    }
  fi
  echo "Installing the dependencies ($extras) into .venv ..." >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extras]" || {
    echo "Could not install the dependencies; see the lines above." >&2
    return 4
  }
  touch "$stamp"
}
