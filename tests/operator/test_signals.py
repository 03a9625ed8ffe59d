"""Whose signals they are: of the operator if nobody has asked for anything else."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable
from typing import Any

import pytest

from kopf._operator.signals import _is_default


def handle(*_: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (signal.SIG_DFL, True),
        (signal.SIG_IGN, True),
        (signal.default_int_handler, True),
        (handle, False),
        (functools.partial(handle, 1), False),
        (None, False),
    ],
)
def test_handlers(handler: Callable[..., object] | None, expected: bool) -> None:
    assert _is_default(handler) is expected


def test_ctrl_c_of_event_loops() -> None:
    async def get_handler() -> object:
        return signal.getsignal(signal.SIGINT)

    with asyncio.Runner() as runner:
        assert _is_default(runner.run(get_handler()))
