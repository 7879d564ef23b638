#!/usr/bin/env bash
# Sets up .venv if needed, then execs spark-submit with conf/spark-defaults.conf.
#
#   ./spark-submit.sh jobs/run.py --config conf/demo.toml                       on this machine
#   ./spark-submit.sh --master spark://host:7077 jobs/run.py --config FILE      on a cluster; also yarn, k8s://...
#   ./spark-submit.sh --master yarn --deploy-mode cluster --ship-environment jobs/run.py --config FILE
#
# Options of spark-submit go before the job. There are two more:
#   --ship-environment   also ship numpy, numba, pyarrow and pandas, for executors that have only a bare Python, of the
#                        same version and platform as the one here
#   --print              print the command instead of running it; nothing is set up (also KERNELCORESET_DRY_RUN=1)
#
# The settings of a job of this project are checked here, before Java starts.
#
# The Python of the executors is PYSPARK_PYTHON; on a cluster the default is python3. SPARK_HOME, if set, selects the Spark.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=environment.sh
. "$root/environment.sh"

master='local[*]' mode=client properties=$root/conf/spark-defaults.conf
py_files='' archives='' files='' code='' ship=no print=${KERNELCORESET_DRY_RUN:-}
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
    --print) print=1 && shift && continue ;;
    --ship-environment) ship=yes && shift && continue ;;
    --help | -h) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0" && exit ;;
    --verbose | -v | --supervise | --version) options+=("$1") && shift && continue ;;
    -*) [ $# -ge 2 ] || { echo "The option $1 needs a value; see ./spark-submit.sh --help" >&2 && exit 2; } ;;
    *) break ;;
  esac
  case $1 in
    --master) master=$2 ;;
    --deploy-mode) mode=$2 ;;
    --properties-file) properties=$2 ;;
    --py-files) py_files=$2 ;;
    --archives) archives=$2 ;;
    --files) files=$2 ;;
    *) options+=("$1" "$2") ;;
  esac
  shift 2
done
if [ $# -eq 0 ]; then
  echo "Which job? Such as: ./spark-submit.sh jobs/run.py --config conf/demo.toml" >&2
  exit 2
fi
case $master:$mode in
  local*:cluster) echo "--deploy-mode cluster needs a cluster; the master is $master. Give --master yarn or k8s://..." >&2 && exit 2 ;;
  spark:*:cluster) echo "A standalone cluster runs Python jobs in client mode only. Leave --deploy-mode out." >&2 && exit 2 ;;
esac

# The jobs of this project answer --help and check their settings without Java. Others are not called; nor are those
# whose settings may name functions in --py-files, which only Spark unpacks. With --version no job runs.
check=()
if [ "$1" -ef "$root/jobs/${1##*/}" ] && [ -z "$py_files" ] && [[ " ${options[*]-} " != *' --version '* ]]; then
  check=("$root/.venv/bin/python" "$1" --check "${@:2}")
fi

# In cluster mode the driver runs elsewhere: the settings file is shipped, and is in the working directory there.
application=("$@")
if [ "$mode" = cluster ]; then
  for i in "${!application[@]}"; do
    case ${application[i]} in
      --config=*) config=${application[i]#*=} && application[i]=--config=${config##*/} ;;
      --config) config=${application[i + 1]} && application[i + 1]=${config##*/} ;;
      *) continue ;;
    esac
    files=${files:+$files,}$config
  done
fi

environment=()
shipped=$root/.venv/shipped
if [[ $master == local* ]]; then
  environment+=("PYSPARK_PYTHON=${PYSPARK_PYTHON:-$root/.venv/bin/python}")
  # Over TCP every task of a Python worker waits 0.04 s for an acknowledgement (Spark 4.1 and newer).
  options=(--conf spark.python.unix.domain.socket.enabled=true ${options[@]+"${options[@]}"})
else
  # Named by its content: new executors of a running job get the package it started with, and numba, which keeps
  # machine code by path, never uses that of an older package.
  content=$(cd "$root" && find kernelcoreset -type f ! -path '*/__pycache__/*' | LC_ALL=C sort | xargs cksum | cksum)
  package=$shipped/${content%% *}/kernelcoreset.zip
  # In cluster mode the driver starts on a machine without machine code, so that is shipped too. In client mode the driver
  # lends its own.
  [ "$mode" = cluster ] && code=$shipped/${content%% *}/kernelcoreset_code_any.zip
  py_files=$package${code:+,$code}${py_files:+,$py_files}
  environment+=("PYSPARK_PYTHON=${PYSPARK_PYTHON:-python3}")
  [ "$mode" = client ] && environment+=("PYSPARK_DRIVER_PYTHON=$root/.venv/bin/python")
  # Else Spark asks the Python of the cluster where it is, which need not have pyspark.
  if [ "$mode" = cluster ] && [ -z "${SPARK_HOME:-}" ]; then
    for home in "$root"/.venv/lib/python3.*/site-packages/pyspark; do environment+=("SPARK_HOME=$home"); done
  fi
  if [ $ship = yes ]; then
    archives=$shipped/packages.tar.gz#packages${archives:+,$archives}
    options+=(--conf spark.executorEnv.PYTHONPATH=packages)
    case $master:$mode in
      yarn:cluster) options+=(--conf spark.yarn.appMasterEnv.PYTHONPATH=packages) ;;
      k8s:*:cluster) options+=(--conf spark.kubernetes.driverEnv.PYTHONPATH=packages) ;;
    esac
  fi
fi
# Java logs one line per event, unless the job is asked for more.
case " ${application[*]} " in
  *' --verbose '*) ;;
  *) environment+=("LOG4J_CONFIGURATION_FILE=${LOG4J_CONFIGURATION_FILE:-$root/kernelcoreset/spark/jobs/log4j2.properties}") ;;
esac
# A progress line for a terminal, timestamps for a log file. The job cannot tell which: its output is a pipe. Spark's own bar,
# which is off here by default, shows stages instead of rows, and would overwrite the line.
if [ -t 2 ]; then
  environment+=(KERNELCORESET_TERMINAL=1)
fi

# Pack the package, and with --ship-environment its dependencies, as archives that any cluster manager can ship.
pack() {
  mkdir -p "${package%/*}"
  [ -e "$package" ] || .venv/bin/python - "$package" <<'PYTHON'
import os, pathlib, sys, zipfile
fresh = f"{sys.argv[1]}.{os.getpid()}"
with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
    for path in sorted(pathlib.Path("kernelcoreset").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            archive.write(path)
os.replace(fresh, sys.argv[1])
PYTHON
  if [ -n "$code" ] && ! [ -e "$code" ]; then
    local archive target=(NUMBA_CACHE_DIR="$shipped/code")
    # Nearly every processor of a cluster has at least these features; others compile for themselves.
    [ "$(uname -m)" = x86_64 ] && target+=(NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=)
    archive=$(env "${target[@]}" .venv/bin/python -m kernelcoreset.models.rehearsal) || exit 4
    cp "$archive" "$code.$$" && mv "$code.$$" "$code"
  fi
  if [ $ship = yes ] && ! [ "$shipped/packages.tar.gz" -nt pyproject.toml ]; then
    echo "Packing the environment for the executors ..." >&2
    local fresh=$shipped/packages.$$
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$fresh" . 'pandas>=2.2,<3' || exit 4
    rm -rf "$fresh/kernelcoreset" # the zip has the current package
    tar -czf "$fresh.tar.gz" -C "$fresh" .
    mv "$fresh.tar.gz" "$shipped/packages.tar.gz"
    rm -rf "$fresh"
  fi
}

if [ -z "$print" ]; then
  here=$PWD
  cd "$root"
  prepare_environment spark
  cd "$here"
  case " ${*:2} " in
    *' --help '* | *' -h '* | *' --version '*) [ ${#check[@]} -eq 0 ] || exec "${check[@]}" ;;
    *) ${check[@]+"${check[@]}"} || exit ;;
  esac
  cd "$root"
  prepare_java
  [[ $master == local* ]] || pack
  cd "$here"
elif ! has_java; then
  JAVA_HOME=$root/.venv/java
fi
command=(env ${JAVA_HOME:+"JAVA_HOME=$JAVA_HOME"} "${environment[@]}" "$root/.venv/bin/spark-submit"
  --master "$master" --deploy-mode "$mode" --properties-file "$properties"
  ${py_files:+--py-files "$py_files"} ${archives:+--archives "$archives"} ${files:+--files "$files"}
  ${options[@]+"${options[@]}"} "${application[@]}")

# Java ends at SIGTERM or SIGINT with code 143 or 130, whatever the job does. For a stream, which is stopped that way, only
# the job gets them; again and again, because it may not listen yet.
run_until_stopped() {
  local child code stopped
  set -m # a process group of its own
  (trap '' TERM INT && exec "${command[@]}") </dev/null &
  child=$!
  set +m
  trap 'stopped=1; forward TERM "$child" &' TERM
  trap 'stopped=1; forward INT "$child" &' INT
  while :; do
    stopped=''
    wait "$child" && code=0 || code=$?
    [ -n "$stopped" ] || exit "$code"
  done
}

forward() {
  trap '' TERM INT
  while kill -s "$1" -- "-$2" 2>/dev/null; do sleep 1; done
}

if [ -n "$print" ]; then
  printf '%q ' "${command[@]}" && echo
elif [ "$mode" = client ] && [ "${application[0]##*/}" = stream.py ]; then
  run_until_stopped
else
  exec "${command[@]}"
fi
