"""Fixtures and settings for all tests."""

import logging
import os

import pytest
from hypothesis import settings

from tests import java
from tests.cases import DRAWS, KERNELS

os.environ.setdefault("JAVA_TOOL_OPTIONS", java.options())

# No deadline: the first example may compile. In CI the same examples every time, so that a red run can be repeated.
settings.register_profile("here", deadline=None, max_examples=50, database=None)
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(params=KERNELS, ids=repr)
def kernel(request):
    """Every kind of kernel in turn."""
    return request.param


@pytest.fixture(params=DRAWS)
def draw(request):
    """Every way to draw in turn."""
    return request.param


@pytest.fixture(autouse=True)
def logging_as_before():
    """A job sets up the package's logger for its process; other tests want theirs back."""
    logger = logging.getLogger("kernelcoreset")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
