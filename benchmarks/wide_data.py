"""Data of many columns for the benchmarks: images from a folder that the user names, and texts found on this machine.

The texts are the docstrings of installed packages. Their embeddings are character n-grams, weighted by TF-IDF, and then
a truncated SVD or, for more columns, a random projection; rows have length 1.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

PACKAGES = ("numpy", "pandas", "sklearn", "scipy", "pyarrow", "pyspark")
_SVD_COLUMNS = 384
_SHORTEST_TEXT, _LONGEST_TEXT = 40, 500
_MOST_TEXTS = 8_000


def images(folder: Path, n: int, seed: int = 0) -> np.ndarray:
    """Return n images of 784 pixels as uint8: those of MNIST drawn with replacement, plus noise of 8 grey levels."""
    table = pq.read_table(folder / "mnist_test.parquet", columns=["x"])
    pixels = np.stack(table["x"].to_numpy()).astype(np.float32)
    generator = np.random.default_rng(seed)
    chosen = pixels[generator.integers(len(pixels), size=n)]
    chosen += 8.0 * generator.standard_normal(chosen.shape, dtype=np.float32)
    return np.rint(chosen).clip(0, 255).astype(np.uint8)


def embeddings(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Return n embeddings of texts as float32 of shape (n, d), of length 1.

    Up to 384 columns are the leading ones of a truncated SVD, more are a random projection. If there are fewer texts
    than n, they are drawn with replacement and get noise of a tenth of their length.
    """
    rows = _leading()[:, :d] if d <= _SVD_COLUMNS else _projected(d, seed)
    generator = np.random.default_rng(seed)
    if n > len(rows):
        rows = rows[generator.integers(len(rows), size=n)]
        noise = generator.standard_normal(rows.shape, dtype=np.float32)
        rows = rows + noise * (0.1 * np.linalg.norm(rows, axis=1, keepdims=True) / np.sqrt(d))
    rows = np.array(rows[:n], dtype=np.float32, order="C")
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@cache
def _leading() -> np.ndarray:
    from sklearn.decomposition import TruncatedSVD

    return _with_length(TruncatedSVD(_SVD_COLUMNS, n_iter=2, random_state=0).fit_transform(_counts()))


def _projected(d: int, seed: int) -> np.ndarray:
    counts = _counts()
    matrix = np.random.default_rng(seed).standard_normal((counts.shape[1], d), dtype=np.float32)
    return _with_length(np.asarray(counts @ matrix))


def _with_length(rows: np.ndarray) -> np.ndarray:
    """The rows of length above 0, as float32."""
    rows = rows.astype(np.float32)
    return rows[np.linalg.norm(rows, axis=1) > 1e-6]


@cache
def _counts() -> Any:
    """TF-IDF of character n-grams, sparse."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), max_features=20_000, sublinear_tf=True)
    return vectorizer.fit_transform(texts()).astype(np.float32)


@cache
def texts() -> tuple[str, ...]:
    """Return the first different docstrings of the installed packages among `PACKAGES`, in a fixed order."""
    found = dict[str, None]()
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            if len(found) >= _MOST_TEXTS:
                return tuple(found)
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, UnicodeDecodeError, ValueError):  # sources kept to test parsers
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module):
                    text = (ast.get_docstring(node) or "")[:_LONGEST_TEXT]
                    if len(text) >= _SHORTEST_TEXT:
                        found[text] = None
    return tuple(found)
