"""
Watch-events for those who do not look at them, most probably: dicts, whose object is decoded only if they do.

Libraries written in C do not notice that such a dict is special. So, those who do look get a plain copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kopf._values.bodies import RawEventType
from kopf._values.objects import KubeObject


class LazyEvent(dict[str, Any]):
    """A dict of two keys: ``type`` & ``object``, the latter being made on the first access to anything but the type."""

    def __init__(self, type: RawEventType, object: KubeObject) -> None:
        super().__init__(type=type)
        self._source: KubeObject | None = object

    def __missing__(self, key: str) -> Any:
        self._materialise()
        if key in self:
            return self[key]
        raise KeyError(key)

    def _materialise(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            super().__setitem__("object", dict(source))

    def __eq__(self, other: object) -> bool:
        self._materialise()
        if isinstance(other, LazyEvent):
            other._materialise()
        return dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.copy(),)

    __hash__ = None


def _make_materialising(name: str) -> Callable[..., Any]:
    original = getattr(dict, name)

    def method(self: LazyEvent, *args: Any, **kwargs: Any) -> Any:
        self._materialise()
        return original(self, *args, **kwargs)

    return method


# All what can see or change the object; besides the reading by key, which is served by `__missing__`.
for _name in (
    *("__contains__", "__iter__", "__len__", "__reversed__", "__repr__"),
    *("__or__", "__ror__", "__ior__", "__setitem__", "__delitem__"),
    *("keys", "values", "items", "get", "copy", "pop", "popitem", "setdefault", "update", "clear"),
):
    setattr(LazyEvent, _name, _make_materialising(_name))
