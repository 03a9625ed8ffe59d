"""The admission: a real operator with a real API, as in the tests of behaviour; reviews come in different ways."""
from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.admission.reviewing import Reviewer
from tests.behaviour.conftest import (  # noqa: F401  # fixtures
    _default_registry,
    api,
    as_users_run_it,
    calls,
    cluster,
    kex,
    load,
    logs,
    operator,
    registry,
    sub,
    watch_lag,
)
from tests.behaviour.running import Operator


@pytest.fixture
async def reviewer(operator: Operator) -> AsyncIterator[Reviewer]:  # noqa: F811
    """A server that asks for reviews directly, without HTTP: what the operator makes of them is all that matters."""
    reviewer = Reviewer(operator)
    operator.configure = reviewer.configure
    yield reviewer
    await reviewer.stop()
