from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import kopf


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What the functions in threads wait for; at the latest, until the end of the test."""
    event = threading.Event()
    yield event
    event.set()
