"""The notebook is that of the script, and prints what it shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tools.make_notebook import make_notebook

from tests.examples.conftest import EXAMPLES

NOTEBOOK = EXAMPLES / "notebook" / "outage.ipynb"


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    logger = logging.getLogger("kopf")
    level = logger.level
    yield
    logger.setLevel(level)


def test_the_notebook_is_that_of_the_script() -> None:
    made = make_notebook(NOTEBOOK.with_suffix(".py").read_text())
    assert made == NOTEBOOK.read_text(), "Run: python -m tools.make_notebook examples/notebook/outage.py"
    assert "seconds until all are paid" in made
