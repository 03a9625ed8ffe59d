"""
Garbage: how often the collector of cyclic garbage looks for it in the process of an operator.

By default, Python does so for every few hundred new objects, and from time to time goes through everything there is.
A busy operator makes that many for a dozen handled objects, with hardly any cycles among them; and nearly everything
there is (modules, classes, functions) stays until the end. It took 8 % of the CPU of a busy operator.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_DEFAULTS = gc.get_threshold()
"""As they are before any code of users is loaded."""

_NEW_OBJECTS = 10_000
"""How many new containers there are until it is looked if any of them are garbage: 1-2 MiB of them."""


def collect_rarely() -> None:
    """Look only at what is new from now on, and less often; unless the user has decided on how to do it."""
    if gc.isenabled() and gc.get_threshold() == _DEFAULTS and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, *_DEFAULTS[1:])


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Do the same for as long as the context lasts, as in a test that begins operators by the hundred."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
