"""
Clusters in threads of their own, so that clients of any kind, also the blocking ones, can talk to them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kopf.testing import LocalCluster
from tests.cluster.rounds import widgets
from tests.cluster.rounds.malformed import check_alive, prepare
from tests.cluster.rounds.wire import Wire


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A new cluster that serves the custom resource of the rounds."""
    with LocalCluster() as cluster:
        cluster.apply(widgets.DEFINITION)
        yield cluster


@pytest.fixture(scope="module")
def server() -> Iterator[LocalCluster]:
    """The same, but for all tests of a module together: for those with many examples."""
    with LocalCluster() as cluster:
        cluster.apply(widgets.DEFINITION)
        cluster.apply(widgets.FREE_DEFINITION)
        yield cluster


class _Complaints(logging.Handler):
    """Everything that the server complains about, be it in its own log or in those of the libraries below."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def wire(server: LocalCluster) -> Iterator[Wire]:
    """A connection to the common server, which must have nothing to complain about, whatever is sent to it."""
    complaints = _Complaints()
    logging.getLogger().addHandler(complaints)
    try:
        with Wire(server) as wire:
            yield wire
    finally:
        logging.getLogger().removeHandler(complaints)
    assert complaints.messages == []


@pytest.fixture
def objects(server: LocalCluster, wire: Wire) -> Iterator[None]:
    """Something to be addressed by malformed requests, which must be there afterwards, too."""
    prepare(server)
    yield
    check_alive(wire)
