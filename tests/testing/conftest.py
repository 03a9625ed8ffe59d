from __future__ import annotations

import pytest

from kopf_cluster.api.discovery import VERSION


@pytest.fixture
def older_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server before Kubernetes 1.35: it does not say that versions of objects can be compared."""
    monkeypatch.setitem(VERSION, "minor", "34")
