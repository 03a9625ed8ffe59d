from __future__ import annotations

from collections.abc import Iterator

import pytest

import kopf


@pytest.fixture(autouse=True)
def registry() -> Iterator[kopf.OperatorRegistry]:
    """The default registry for the duration of the test."""
    previous, registry = kopf.get_default_registry(), kopf.OperatorRegistry()
    kopf.set_default_registry(registry)
    yield registry
    kopf.set_default_registry(previous)
