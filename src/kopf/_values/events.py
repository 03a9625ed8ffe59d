"""Watch-events as users see them: plain dicts, whose object is fully decoded only if somebody looks at it."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

from kopf._values.bodies import RawEventType
from kopf._values.objects import KubeObject

_KEYS = ("type", "object")


class LazyEvent(dict[str, Any]):
    """A dict of two keys: ``type`` & ``object``, the latter being made on the first access."""

    def __init__(self, type: RawEventType, object: KubeObject) -> None:
        super().__init__(type=type)
        self._source = object

    def __missing__(self, key: str) -> Any:
        if key != "object":
            raise KeyError(key)
        value = self["object"] = dict(self._source)
        return value

    def _materialise(self) -> None:
        if not dict.__contains__(self, "object"):
            self.__missing__("object")

    def get(self, key: str, default: Any = None) -> Any:
        if key == "object":
            self._materialise()
        return dict.get(self, key, default)

    def __contains__(self, key: object) -> bool:
        return key in _KEYS or dict.__contains__(self, key)

    def __iter__(self) -> Iterator[str]:
        self._materialise()
        return dict.__iter__(self)

    def __len__(self) -> int:
        self._materialise()
        return dict.__len__(self)

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # equivalents of the builtin views
        self._materialise()
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._materialise()
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._materialise()
        return ItemsView(self)

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        self._materialise()
        return dict.__eq__(self, other)

    __hash__ = None

    def __repr__(self) -> str:
        self._materialise()
        return dict.__repr__(self)
