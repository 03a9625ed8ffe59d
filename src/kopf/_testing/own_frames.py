"""
Tracebacks of failed tests without frames of the kit: the failure is in a line of the test, not in our code.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Sequence
from types import TracebackType

import kopf_cluster
from kopf import _virtual_time
from kopf._virtual_time.patience import SimulationError

_OWN = tuple(
    str(pathlib.Path(file).parent)
    for file in (__file__, _virtual_time.__file__, kopf_cluster.__file__, asyncio.__file__)
)
"""The folders of the code between the test and its failure."""
_OF_TESTS = (AssertionError, TimeoutError, SimulationError, kopf_cluster.APIStatus)
"""The errors that the kit raises for tests. All others can be its own bugs, and are shown to the last frame."""


def leave_out_own_frames(error: BaseException, others: Sequence[str] = ()) -> TracebackType | None:
    """Give the traceback of the error without the frames in our files and in those others, if anything is left."""
    frames: list[TracebackType] = []
    tb = error.__traceback__
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    ours = [is_own(tb, others) for tb in frames]
    if not isinstance(error, _OF_TESTS):
        while ours and ours[-1]:
            del ours[-1]
        ours += [False] * (len(frames) - len(ours))
    kept: TracebackType | None = None
    for tb, is_ours in zip(reversed(frames), reversed(ours), strict=True):
        if not is_ours:
            kept = TracebackType(kept, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return kept


def is_own(tb: TracebackType, others: Sequence[str]) -> bool:
    """Whether the frame is in a file of ours."""
    return tb.tb_frame.f_code.co_filename.startswith((*_OWN, *others))
