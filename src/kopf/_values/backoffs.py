"""Delays that grow with the failures of a handler, with a jitter, so that objects are not retried all at once."""

from __future__ import annotations

import hashlib

from kopf._values.records import FrozenRecord


class ExponentialBackoff(FrozenRecord, frozen=True, kw_only=True):
    """A growing delay, as :func:`exponential` makes it. All times are in seconds."""

    initial: float
    factor: float
    maximum: float
    jitter: float

    def get_delay(self, failures: int, seed: str) -> float:
        """
        Calculate the delay in seconds after this number of failures before the last one.

        It is the same for the same seed, also after a restart of the operator.
        """
        try:
            delay = min(self.maximum, self.initial * self.factor**failures)
        except OverflowError:
            delay = self.maximum
        digest = hashlib.blake2b(f"{seed} {failures}".encode(), digest_size=4).digest()
        return round(delay * (1 - self.jitter * int.from_bytes(digest) / 2**32), 3)


def exponential(
    *, initial: float = 1, factor: float = 2, maximum: float = 600, jitter: float = 0.1
) -> ExponentialBackoff:
    """
    Make a growing delay between the attempts of a handler, for ``backoff=`` or ``settings.execution.default_backoff``.

    :param initial: the delay after the first failure, in seconds.
    :param factor: the ratio of each delay to the previous one; 1 or more.
    :param maximum: the longest delay, in seconds.
    :param jitter: the maximal part of the delay by which Kopf shortens it, from 0 to 1. The actual part depends on the
        handler, the object, and the number of the attempt, so it is the same after a restart of the operator.
    :raises ValueError: if an argument is out of its range.
    """
    if not 0 <= initial <= maximum:
        raise ValueError(f"0 <= initial <= maximum is needed, got {initial=} and {maximum=}.")
    if not factor >= 1:
        raise ValueError(f"The factor must be 1 or more, got {factor!r}.")
    if not 0 <= jitter <= 1:
        raise ValueError(f"The jitter must be between 0 and 1, got {jitter!r}.")
    return ExponentialBackoff(
        initial=float(initial), factor=float(factor), maximum=float(maximum), jitter=float(jitter)
    )
