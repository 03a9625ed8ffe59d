"""
Randomness: each call of a handler has its own random numbers, derived from the seed of the recording.

With one sequence for all calls, the numbers would depend on the order of concurrent calls. So, the functions of the
module ``random`` are replaced while an operator is recorded or replayed. Code outside of handlers, e.g. the rest of
the application, gets numbers from the usual source.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import random
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock


class _Source:
    """The random numbers of one call; they are made when the first one is needed."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    @functools.cached_property
    def generator(self) -> Random:
        return Random(self._seed)


_source: contextvars.ContextVar[_Source] = contextvars.ContextVar("random_source")


class _CallRandom(Random):
    """The generator for the functions of the module: it passes everything on to the source of the current call."""

    def __init__(self, outside: Random) -> None:
        self._outside = Random()  # to be seeded by the parent class, instead of what others use already
        super().__init__()
        self._outside = outside

    def random(self) -> float:
        return self._get().random()

    def getrandbits(self, k: int, /) -> int:
        return self._get().getrandbits(k)

    def seed(self, *args: Any, **kwargs: Any) -> None:
        self._get().seed(*args, **kwargs)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return self._get().gauss(mu, sigma)  # it remembers every second number

    def getstate(self) -> Any:
        return self._get().getstate()

    def setstate(self, state: Any) -> None:
        self._get().setstate(state)

    def _get(self) -> Random:
        source = _source.get(None)
        return self._outside if source is None else source.generator


class ShortestDelays(Random):
    """
    Makes delays with jitter the shortest ones.

    The recorded delays cannot be repeated, as their callers are unknown; but early actions of a replay are held back.
    """

    def random(self) -> float:
        return 0.0


class Randomness:
    """
    Random numbers that are the same in a replay of the same call.

    :param outside: the source of numbers outside of calls; by default, the usual one.
    """

    def __init__(self, seed: int, outside: Random | None = None) -> None:
        self._seed = seed
        self._outside = outside

    @contextlib.contextmanager
    def replacing_functions(self) -> Iterator[None]:
        """Replace the functions of the module ``random`` inside of the ``with`` block."""
        originals = {
            name: function
            for name in random.__all__
            if isinstance(getattr(function := getattr(random, name), "__self__", None), Random)
        }
        instance = _CallRandom(self._outside if self._outside is not None else originals["getrandbits"].__self__)
        with mock.patch.multiple(random, **{name: getattr(instance, name) for name in originals}):
            yield

    @contextlib.contextmanager
    def of_call(self, number: int) -> Iterator[None]:
        """Use the numbers of the call that is recorded with this number inside of the ``with`` block."""
        token = _source.set(_Source(f"{self._seed}:{number}"))
        try:
            yield
        finally:
            _source.reset(token)
