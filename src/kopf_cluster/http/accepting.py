"""
What clients accept: the header ``Accept``, understood as kube-apiserver does.

See "Alternate representations of resources" of the Kubernetes "API Concepts": parameters of a media type ask for
another form of the objects, and a server that has no such form goes on to what else is accepted.
"""
from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec


class Clause(msgspec.Struct, frozen=True):
    """One of the accepted media types, which can be a pattern, with its parameters."""

    media: str
    parameters: Mapping[str, str]

    def covers(self, media: str) -> bool:
        """Tell whether the media type, which has no parameters, is meant."""
        return self.media in (media, f"{media.partition('/')[0]}/*", "*/*")

    @property
    def is_plain(self) -> bool:
        """Whether objects are wanted as they are."""
        return "as" not in self.parameters


@functools.lru_cache(maxsize=256)
def parse_accept(header: str) -> tuple[Clause, ...]:
    """Give what is accepted, the most wanted first; without the header, it is JSON."""
    if not header:
        return (Clause("application/json", {}),)
    weighted = [_parse_clause(text) for text in header.split(",")]
    weighted.sort(key=lambda pair: (-pair[0], pair[1].media.count("*")))
    return tuple(clause for _, clause in weighted)


def _parse_clause(text: str) -> tuple[float, Clause]:
    media, *parts = (part.strip() for part in text.split(";"))
    parameters = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in parts)}
    return _parse_weight(parameters.pop("q", "1")), Clause(media, parameters)


def _parse_weight(text: str) -> float:
    """Understand the weight; what is none weighs nothing, but is accepted as well."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
