"""Each test of the test kit has its own default registry, so it declares its handlers as users do."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

import kopf
from kopf_cluster.api.discovery import VERSION


@pytest.fixture(autouse=True)
def registry() -> Iterator[kopf.OperatorRegistry]:
    previous, registry = kopf.get_default_registry(), kopf.OperatorRegistry()
    kopf.set_default_registry(registry)
    yield registry
    kopf.set_default_registry(previous)


@pytest.fixture
def older_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server before Kubernetes 1.35: it does not say that versions of objects can be compared."""
    monkeypatch.setitem(VERSION, "minor", "34")
