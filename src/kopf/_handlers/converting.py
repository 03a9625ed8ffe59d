"""
Conversions of objects between the versions of their definition: the choice of functions, and their limits.

API servers ask for any pair of versions, with or without a function for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._handlers.handler_errors import describe, name_error
from kopf._handlers.handlers import ConversionHandler
from kopf._values import codec

Obj = dict[str, Any]

_FREE = frozenset({"labels", "annotations"})
"""The metadata that conversions can change: API servers refuse other changes."""


class ConversionError(Exception):
    """The conversion has failed. If a function has failed, the cause is its error."""

    def __init__(self, text: str, *, public: str | None = None) -> None:
        super().__init__(text)
        self.public = text if public is None else public
        """The text for clients of the API: errors of functions can contain secrets."""


class ConversionRoutes:
    """The conversions of one definition."""

    def __init__(self, definition: str, handlers: Iterable[ConversionHandler]) -> None:
        self.definition = definition
        self._handlers: dict[str, list[ConversionHandler]] = {}
        for handler in handlers:
            if handler.definition == definition:
                self._handlers.setdefault(handler.source, []).append(handler)

    def find(self, source: str, target: str) -> Sequence[ConversionHandler]:
        """Find the shortest way, the first declared one of several. Raises :class:`ConversionError` without any."""
        routes: dict[str, tuple[ConversionHandler, ...]] = {source: ()}
        queue = [source]
        for version in queue:  # the list grows meanwhile
            for handler in self._handlers.get(version, ()):
                if handler.target not in routes:
                    routes[handler.target] = (*routes[version], handler)
                    queue.append(handler.target)
        if target not in routes:
            raise ConversionError(
                f"There is no way from {source} to {target} of {self.definition}: declare "
                f"@kopf.convert({self.definition!r}, {source!r}, {target!r}), or a way through other versions."
            )
        return routes[target]


def convert(handler: ConversionHandler, obj: Obj) -> Obj:
    """Call the synchronous function with the object, which it can modify. Raises :class:`ConversionError`."""
    with _calling(handler, obj) as original:
        result = handler.fn(obj)
    return _complete(handler, original, obj, result)


async def convert_async(handler: ConversionHandler, obj: Obj) -> Obj:
    """Call the asynchronous function with the object, which it can modify. Raises :class:`ConversionError`."""
    with _calling(handler, obj) as original:
        result = await handler.fn(obj)
    return _complete(handler, original, obj, result)


@contextlib.contextmanager
def _calling(handler: ConversionHandler, obj: Obj) -> Iterator[Obj]:
    """Copy the parts that the function must not change, and turn its errors into :class:`ConversionError`."""
    original = {"kind": obj["kind"], "metadata": codec.decode(codec.encode(_get_fixed(obj["metadata"])))}
    try:
        yield original
    except Exception as e:
        what = _describe(handler, original)
        public = f"{what} has failed: {describe(e, instead='see the log of the operator.', is_shown=False)}"
        raise ConversionError(f"{what} has failed: {name_error(e)}", public=public) from e


def _complete(handler: ConversionHandler, original: Obj, obj: Obj, result: Any) -> Obj:
    if not isinstance(result, Mapping):
        returned = f"has returned {'nothing' if result is None else type(result).__name__} instead of the object."
        raise ConversionError(f"{_describe(handler, original)} {returned}")
    metadata = result.get("metadata", obj.get("metadata"))
    old, new = original["metadata"], _get_fixed(metadata) if isinstance(metadata, Mapping) else {}
    if changed := sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
        fields = ", ".join(f"metadata.{name}" for name in changed)
        text = f"has changed {fields}; only the labels and the annotations can be changed."
        raise ConversionError(f"{_describe(handler, original)} {text}")
    version = f"{handler.definition.partition('.')[2]}/{handler.target}"
    return {**result, "apiVersion": version, "kind": original["kind"], "metadata": metadata}


def _get_fixed(metadata: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in metadata.items() if name not in _FREE}


def _describe(handler: ConversionHandler, obj: Obj) -> str:
    names = "/".join(name for key in ("namespace", "name") if (name := obj["metadata"].get(key)))
    function = getattr(handler.fn, "__qualname__", handler.fn)
    return f"The conversion of {names} from {handler.source} to {handler.target} by {function}()"
