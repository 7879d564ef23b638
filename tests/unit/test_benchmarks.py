"""Every benchmark imports, parses its arguments, and uses only public names that exist."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

from benchmarks import check, tables

ROOT = Path(__file__).parents[2]
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
}
COMMANDS = [
    name
    for name, tree in SOURCES.items()
    if any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in tree.body)
]


def imported_names(tree):
    """Every name imported from the project, also inside functions: where it is bound, and what it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("kernelcoreset", "benchmarks"):
            for alias in node.names:
                yield alias.asname or alias.name, node.module, alias.name


def look_up(module, name):
    """Return `from module import name`."""
    found = importlib.import_module(module)
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize("name", SOURCES)
def test_every_imported_name_exists_and_is_public(name):
    tree = SOURCES[name]
    modules = {}
    for bound, module, original in imported_names(tree):
        found = look_up(module, original)
        assert not original.startswith("_") or original == "__main__", f"{module}.{original}"
        if isinstance(found, type(ast)):
            modules[bound] = found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert hasattr(modules[node.value.id], node.attr), f"{node.value.id}.{node.attr}"
            assert not node.attr.startswith("_") or node.attr == "__doc__", f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_parses_its_arguments(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as stop:
        importlib.import_module(name).main()
    assert stop.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_there_are_commands():
    assert {"benchmarks.__main__", "benchmarks.paper.__main__", "benchmarks.labelling"} <= set(COMMANDS)


def test_a_result_names_no_folder_of_the_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks/x.py", "--data", "/somewhere/data", "--points", "5"])
    tables.write_results(tmp_path / "x.md", "X", [])
    assert "`python benchmarks/x.py --data DIR --points 5`" in (tmp_path / "x.md").read_text()
    assert "# X" in capsys.readouterr().out


def test_the_check_marks_what_is_worse_and_keeps_what_it_did_not_measure(tmp_path, monkeypatch, capsys):
    measured = {"labels": 10.0, "build": 0.5}
    groups = {name: lambda name=name: iter([(f"figure of {name}", measured[name])]) for name in measured}
    monkeypatch.setattr(check, "GROUPS", groups)
    monkeypatch.setattr(check, "RESULT", tmp_path / "check.md")
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks" / "__main__.py"), "check", "--write"])
    assert check.run(write=True) == 0
    assert "Made by `python -m benchmarks check --write` on " in capsys.readouterr().out
    measured.update(labels=8.1, build=0.1)
    assert check.run(["labels"], write=True) == 0  # 19 % worse
    rows = check.read_committed(check.RESULT.read_text())
    assert rows["figure of labels"] == ["labels", "figure of labels", "8.1", "10", "0.81", ""]
    assert rows["figure of build"] == ["build", "figure of build", "0.5", "-", "-", ""]
    assert check.run() == 1
    assert "| build | figure of build | 0.1 | 0.5 | 0.20 | **worse** |" in capsys.readouterr().out
    assert check.read_committed(check.RESULT.read_text()) == rows
