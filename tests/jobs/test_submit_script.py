"""spark-submit.sh: the exact command it would exec, for every kind of master, and one real run; what it installs."""

import os
import re
import shlex
import stat
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "spark-submit.sh"
VENV = ROOT / ".venv"
DEFAULTS = ["--properties-file", f"{ROOT}/conf/spark-defaults.conf"]
LOCAL = ["--conf", "spark.python.unix.domain.socket.enabled=true"]
ZIP = f"{VENV}/shipped/CONTENT/kernelcoreset.zip"
CODE = f"{VENV}/shipped/CONTENT/kernelcoreset_code_any.zip"
PACKAGES = f"{VENV}/shipped/packages.tar.gz#packages"
JOB = ["jobs/run.py", "--config", "conf/demo.toml"]


def submit(*arguments, cwd=ROOT, **environment):
    """Run the script with this environment."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "JAVA_", "SPARK_"))
    }
    return subprocess.run(
        [str(SCRIPT), *arguments], cwd=cwd, env={**inherited, **environment}, capture_output=True, text=True
    )


def printed(*arguments, java, **environment):
    """The environment and the arguments of the command that `--print` shows."""
    done = submit("--print", *arguments, JAVA_HOME=str(java), **environment)
    assert done.returncode == 0, done.stderr
    words = shlex.split(re.sub(r"/shipped/\d+/", "/shipped/CONTENT/", done.stdout))
    start = words.index(f"{VENV}/bin/spark-submit")
    assert words[0] == "env"
    return dict(word.split("=", 1) for word in words[1:start]), words[start + 1 :]


def fake_java(folder, version):
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def java(tmp_path):
    return fake_java(tmp_path / "java-17", "17.0.15")


def test_local_is_the_default(java):
    environment, words = printed(*JOB, java=java)
    assert words == ["--master", "local[*]", "--deploy-mode", "client", *DEFAULTS, *LOCAL, *JOB]
    assert environment == {
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": f"{VENV}/bin/python",
        "LOG4J_CONFIGURATION_FILE": f"{ROOT}/kernelcoreset/spark/jobs/log4j2.properties",
    }


def test_the_user_s_options_come_after_those_of_the_script(java):
    own = ["--conf", "spark.python.unix.domain.socket.enabled=false"]  # Spark takes the last one
    _, words = printed("--master", "local[2]", *own, *JOB, java=java)
    assert words == ["--master", "local[2]", "--deploy-mode", "client", *DEFAULTS, *LOCAL, *own, *JOB]


def test_what_java_logs_is_the_user_s_choice(java):
    assert "LOG4J_CONFIGURATION_FILE" not in printed(*JOB, "--verbose", java=java)[0]
    environment, _ = printed(*JOB, java=java, LOG4J_CONFIGURATION_FILE="/own.properties")
    assert environment["LOG4J_CONFIGURATION_FILE"] == "/own.properties"


def test_a_standalone_cluster_gets_the_package(java):
    environment, words = printed("--master", "spark://host:7077", *JOB, java=java)
    assert words == ["--master", "spark://host:7077", "--deploy-mode", "client", *DEFAULTS, "--py-files", ZIP, *JOB]
    assert environment["PYSPARK_PYTHON"] == "python3"
    assert environment["PYSPARK_DRIVER_PYTHON"] == f"{VENV}/bin/python"


def test_yarn_in_client_mode_with_its_environment(java):
    environment, words = printed("--master", "yarn", "--ship-environment", *JOB, java=java)
    assert words == [
        *("--master", "yarn", "--deploy-mode", "client", *DEFAULTS, "--py-files", ZIP, "--archives", PACKAGES),
        *("--conf", "spark.executorEnv.PYTHONPATH=packages", *JOB),
    ]
    assert environment["PYSPARK_DRIVER_PYTHON"] == f"{VENV}/bin/python"


def test_yarn_in_cluster_mode_ships_the_settings_too(java):
    environment, words = printed(
        "--master", "yarn", "--deploy-mode", "cluster", "--ship-environment", *JOB, "--set", "coreset.k=8", java=java
    )
    assert words == [
        *("--master", "yarn", "--deploy-mode", "cluster", *DEFAULTS),
        *("--py-files", f"{ZIP},{CODE}", "--archives", PACKAGES),
        *("--files", "conf/demo.toml", "--conf", "spark.executorEnv.PYTHONPATH=packages"),
        *("--conf", "spark.yarn.appMasterEnv.PYTHONPATH=packages"),
        *("jobs/run.py", "--config", "demo.toml", "--set", "coreset.k=8"),
    ]
    assert "PYSPARK_DRIVER_PYTHON" not in environment
    assert Path(environment["SPARK_HOME"]).name == "pyspark"
    chosen, _ = printed("--master", "yarn", "--deploy-mode", "cluster", *JOB, java=java, SPARK_HOME="/opt/spark")
    assert "SPARK_HOME" not in chosen  # that of the environment


def test_kubernetes_in_cluster_mode(java):
    master = "k8s://https://host:6443"
    _, words = printed(
        *("--master", master, "--deploy-mode=cluster", "--ship-environment", "--conf", "spark.executor.instances=4"),
        *("jobs/run.py", "--config=conf/demo.toml"),
        java=java,
    )
    assert words == [
        *("--master", master, "--deploy-mode", "cluster", *DEFAULTS),
        *("--py-files", f"{ZIP},{CODE}", "--archives", PACKAGES),
        *("--files", "conf/demo.toml", "--conf", "spark.executor.instances=4"),
        *(
            "--conf",
            "spark.executorEnv.PYTHONPATH=packages",
            "--conf",
            "spark.kubernetes.driverEnv.PYTHONPATH=packages",
        ),
        *("jobs/run.py", "--config=demo.toml"),
    ]


def test_files_of_the_user_are_shipped_too(java):
    environment, words = printed(
        *("--master", "yarn", "--deploy-mode", "cluster", "--ship-environment"),
        *("--py-files", "kernels.py", "--archives", "a.zip#a", "--files", "f.txt", "--name", "two words", "--verbose"),
        *("--properties-file", "own.conf", *JOB),
        java=java,
        PYSPARK_PYTHON="/opt/python3.12",
    )
    value = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
    assert value["--py-files"] == f"{ZIP},{CODE},kernels.py"
    assert value["--archives"] == f"{PACKAGES},a.zip#a"
    assert value["--files"] == "f.txt,conf/demo.toml"
    assert value["--name"] == "two words"
    assert value["--properties-file"] == "own.conf"
    assert words.count("--properties-file") == 1
    assert "--verbose" in words
    assert environment["PYSPARK_PYTHON"] == "/opt/python3.12"


def test_arguments_of_the_job_do_not_change(java):
    own = ["jobs/run.py", "--config", "a b.toml", "--set", "input.where=name = 'O''Hara' AND x > $HOME", "--dry-run"]
    assert printed("--conf=spark.a=b=c", *own, java=java)[1][-len(own) - 2 :] == ["--conf", "spark.a=b=c", *own]


def test_the_environment_variable_prints_too(java):
    done = submit(*JOB, JAVA_HOME=str(java), KERNELCORESET_DRY_RUN="1")
    assert shlex.split(done.stdout)[-3:] == JOB


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.22", None])
def test_a_missing_or_old_java_is_replaced(version, tmp_path):
    home = tmp_path / "none" if version is None else fake_java(tmp_path / "java", version)
    assert printed(*JOB, java=home)[0]["JAVA_HOME"] == f"{VENV}/java"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Which job?"),
        (["--master", "yarn"], "Which job?"),
        (["--master"], "The option --master needs a value"),
        (["--deploy-mode", "cluster", *JOB], "needs a cluster; the master is local"),
        (["--master", "spark://h:1", "--deploy-mode", "cluster", *JOB], "runs Python jobs in client mode only"),
    ],
)
def test_impossible_commands_are_errors(arguments, message, java):
    done = submit("--print", *arguments, JAVA_HOME=str(java))
    assert done.returncode == 2
    assert message in done.stderr


def test_help_shows_how_to_start():
    done = submit("--help")
    assert done.returncode == 0
    assert "./spark-submit.sh jobs/run.py --config conf/demo.toml" in done.stdout
    assert "--ship-environment" in done.stdout
    assert "set -euo" not in done.stdout


def test_a_print_changes_nothing_and_works_from_anywhere(java, tmp_path):
    before = sorted(path.name for path in VENV.iterdir())
    done = submit("--print", "--master", "yarn", "--ship-environment", *JOB, cwd=tmp_path, JAVA_HOME=str(java))
    assert re.search(r"--py-files \S+/shipped/\d+/kernelcoreset.zip ", done.stdout)
    assert sorted(path.name for path in VENV.iterdir()) == before


def loud_java(folder):
    """A Java that says its version, and leaves a file if it is asked for anything else."""
    fake_java(folder, "17.0.15")
    program = folder / "bin" / "java"
    program.write_text(f'{program.read_text()}case "$*" in -version) ;; *) touch "{folder}/started"; exit 70 ;; esac\n')
    return folder


CLUSTERS = [["--master", "local[1]"], ["--master", "yarn", "--deploy-mode", "cluster"], ["--master", "spark://h:1"]]


@pytest.mark.parametrize("master", CLUSTERS, ids=" ".join)
def test_bad_settings_are_said_before_java_starts(master, tmp_path):
    java = loud_java(tmp_path / "java")
    done = submit(*master, *JOB, "--set", "coreset.kk=1", JAVA_HOME=str(java))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Bad settings: conf/demo.toml with --set: Unknown key `coreset.kk`" in done.stderr.splitlines()[-1]
    assert not (java / "started").exists()


@pytest.mark.parametrize("question", ["--help", "-h", "--version"])
@pytest.mark.parametrize("master", CLUSTERS[:2], ids=" ".join)
def test_help_and_version_need_no_java(question, master, tmp_path):
    java = loud_java(tmp_path / "java")
    done = submit(*master, "jobs/run.py", question, JAVA_HOME=str(java), cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kernelcoreset " if question == "--version" else "usage: run.py")
    assert not (java / "started").exists()


def test_the_check_finds_relative_files_from_anywhere(tmp_path):
    java = loud_java(tmp_path / "java")
    (tmp_path / "own.toml").write_text("[input]\n")
    done = submit(f"{ROOT}/jobs/run.py", "--config", "own.toml", cwd=tmp_path, JAVA_HOME=str(java))
    assert done.returncode == 2
    assert "own.toml: Give exactly one of `input.path`" in done.stderr


@pytest.mark.parametrize("job", [JOB, ["own.py", "--help"], ["--py-files", "own.zip", *JOB, "--set", "coreset.kk=1"]])
def test_good_settings_and_other_applications_go_on_to_java(job, tmp_path):
    """Applications that are not of this project are not called with --check."""
    java = loud_java(tmp_path / "java")
    (tmp_path / "own.py").write_text("import pathlib; pathlib.Path('called').touch()\n")
    words = [f"{ROOT}/{word}" if word.startswith(("jobs/", "conf/")) else word for word in job]
    done = submit(*words, cwd=tmp_path, JAVA_HOME=str(java))
    assert done.returncode != 0
    assert (java / "started").exists()
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("extras", ["spark", "dev"])
def test_the_demo_and_the_tests_install_by_the_same_constraints(extras, tmp_path):
    """A Python that only notes its arguments stands in for that of .venv."""
    for name in ("pyproject.toml", "constraints.txt", "environment.sh"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >>arguments\n')
    python.chmod(0o755)
    for _ in range(2):  # the second time everything is installed
        subprocess.run(["bash", "-c", f". ./environment.sh; prepare_environment {extras}"], cwd=tmp_path, check=True)
    assert (tmp_path / "arguments").read_text().splitlines() == [
        f"-m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .[{extras}]"
    ]
    (tmp_path / "constraints.txt").write_text("pyspark==4.0.0\n")
    subprocess.run(["bash", "-c", f". ./environment.sh; prepare_environment {extras}"], cwd=tmp_path, check=True)
    assert len((tmp_path / "arguments").read_text().splitlines()) == 2


def test_the_tests_run_with_the_pyspark_of_the_constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    low, high = next(re.findall(r">=([\d.]+),<([\d.]+)", line)[0] for line in lines if line.startswith("pyspark"))
    as_numbers = [tuple(map(int, text.split(".")[:2])) for text in (low, version("pyspark"), high)]
    assert as_numbers[0] <= as_numbers[1] < as_numbers[2]
