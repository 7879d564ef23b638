"""The shape of the package: imports go downwards, and no module uses another's underscore names."""

import ast
import re
from pathlib import Path

import pytest

import kernelcoreset

PACKAGE = Path(kernelcoreset.__file__).parent
SOURCES = {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}

# A folder may import those on its own line and on lines above it.
LAYERS = [
    {"errors", "_version", "heartbeat", "blas"},
    {"checks"},
    {"files", "reporting"},
    {"kernels", "features"},
    {"coresets", "neighbors"},
    {"clustering"},
    {"labelling"},
    {"describing"},
    {"models"},
    {"graphs", "store"},
    {"spectral"},
    {"exploring"},
    {"estimators"},
    {"mlflow"},
    {"jobs"},
    {"spark"},
    {"spark/ml"},
    {"spark/jobs"},
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
# The packages whose __init__ collects public names from everywhere below.
COLLECTORS = {Path("__init__.py"), Path("spark/__init__.py")}


def folder_of(parts):
    """The folder of a module, as LAYERS names it."""
    return "/".join(parts[:2]) if parts[0] == "spark" and parts[1:2] in (["ml"], ["jobs"]) else parts[0]


def imports_of(tree):
    """Dotted names below the package that a module imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kernelcoreset":
            base = node.module.split(".")[1:]
            yield from (base or [alias.name] for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1:] for a in node.names if a.name.startswith("kernelcoreset."))


@pytest.mark.parametrize("path", sorted(SOURCES.keys() - COLLECTORS), ids=str)
def test_imports_go_downwards(path):
    own = folder_of([*path.parts[:-1], path.stem] if len(path.parts) > 1 else [path.stem])
    for parts in imports_of(SOURCES[path]):
        other = folder_of(parts)
        if other != own and parts[0] not in kernelcoreset.__all__:
            assert LEVEL[other] < LEVEL[own], f"{path} imports {'.'.join(parts)}"


def defined_names(tree):
    return (
        {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        | {a.attr for a in ast.walk(tree) if isinstance(a, ast.Attribute) and isinstance(a.ctx, ast.Store)}
        | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    )


OWN = {path: defined_names(tree) for path, tree in SOURCES.items()}
PRIVATE = {name for names in OWN.values() for name in names if re.match(r"_[^_]", name)}


@pytest.mark.parametrize("path", sorted(SOURCES), ids=str)
def test_no_module_uses_an_underscore_name_of_another(path):
    used = {a.attr for a in ast.walk(SOURCES[path]) if isinstance(a, ast.Attribute)}
    used |= {
        alias.name
        for node in ast.walk(SOURCES[path])
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelcoreset")
        for alias in node.names
        if alias.name != "__version__"
    }
    assert (used & PRIVATE) - OWN[path] == set()


def test_only_the_spark_folder_imports_pyspark():
    for path, tree in SOURCES.items():
        names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if path.parts[0] != "spark":
            assert not [name for name in names if name.split(".")[0] == "pyspark"], path


def test_every_folder_has_its_layer():
    folders = {folder_of([*path.parts[:-1], path.stem]) for path in SOURCES.keys() - COLLECTORS}
    assert folders == set(LEVEL)
