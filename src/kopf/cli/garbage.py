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

_LOOKS = 2
"""
After how many of such looks those are looked at, too, that have outlived one, and so on; by default, it is 10.

What lives for minutes and is in cycles only then (a daemon in the code of users, a connection) is freed only by a look
at everything. With the defaults it would come after a million new containers: hours, or hundreds of MiB. It does not
come too often: Python waits until a quarter of all is new.
"""


def collect_rarely() -> None:
    """Look only at what is new from now on, and less often; unless the user has decided on how to do it."""
    if gc.isenabled() and gc.get_threshold() == _DEFAULTS and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, _LOOKS, _LOOKS)


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
