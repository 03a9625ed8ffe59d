"""The admission: a real operator with a real API, as in the tests of behaviour; reviews come in different ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.admission.configurations import Configurations, Tunnel
from tests.admission.reviewing import Reviewer
from tests.behaviour.conftest import (  # noqa: F401  # fixtures
    api,
    as_users_run_it,
    calls,
    cluster,
    defined,
    kex,
    load,
    logs,
    operator,
    registry,
    sub,
    watch_lag,
)
from tests.behaviour.objects import API
from tests.behaviour.running import Operator


@pytest.fixture
async def reviewer(operator: Operator) -> AsyncIterator[Reviewer]:  # noqa: F811
    """A server that asks for reviews directly, without HTTP: what the operator makes of them is all that matters."""
    reviewer = Reviewer(operator)
    operator.configure = reviewer.configure
    yield reviewer
    await reviewer.stop()


@pytest.fixture
def tunnel(operator: Operator) -> Tunnel:  # noqa: F811
    """A server that is elsewhere: the operator publishes its address."""
    tunnel = Tunnel()
    operator.configure = tunnel.configure
    return tunnel


@pytest.fixture
def configurations(api: API) -> Configurations:  # noqa: F811
    """The managed configurations in the cluster."""
    return Configurations(api)
