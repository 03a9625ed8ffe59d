"""What the pages declare, is not seen by other tests; and how their code is found."""
from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest

import kopf

ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def registry() -> Iterator[kopf.OperatorRegistry]:
    previous, registry = kopf.get_default_registry(), kopf.OperatorRegistry()
    kopf.set_default_registry(registry)
    yield registry
    kopf.set_default_registry(previous)


def get_blocks(path: pathlib.Path, language: str) -> list[str]:
    """Get the blocks of code of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
