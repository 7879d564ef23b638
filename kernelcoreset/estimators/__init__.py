"""The scikit-learn API."""

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "kernelcoreset's estimators need scikit-learn: pip install 'kernelcoreset[scikit-learn]'."
    ) from None
