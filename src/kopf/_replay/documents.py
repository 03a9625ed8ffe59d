"""
Documents: the object of a request, and the differences between the contents of two requests.

Timestamps that are a little apart count as equal: the clock of the replay follows the recorded one, but not to the
microsecond. Texts that contain JSON (usually, annotations) are compared as JSON.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Any

from kopf._replay.known_secrets import PREFIX
from kopf._values import codec
from kopf._virtual_time.journal import ObjectPlace, shorten

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


def parse_path(path: str) -> ObjectPlace | None:
    """Parse the path of an object or its subresource; return ``None`` if it is another path."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    namespace, plural, name = match["namespace"] or "", match["plural"], match["name"] or ""
    if namespace and plural in ("status", "finalize") and not name and not match["group"]:
        namespace, plural, name = "", "namespaces", namespace  # of the namespace itself
    return ObjectPlace(f"{plural}.{match['group']}" if match["group"] else plural, namespace, name)


_TOLERANCE = 0.5
"""How far timestamps can be apart, in seconds; timestamps in whole seconds can be a second more apart."""
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_REDACTED = re.compile(PREFIX + "[0-9a-f]{16}")
_MAX_SHOWN = 60


def read(body: bytes | None) -> Any:
    """Decode the body of a request; return a text if it is not JSON."""
    if body is None:
        return None
    try:
        return codec.decode(body)
    except ValueError:
        return body.decode(errors="replace")


def compare(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Describe the differences, one line each; there are none if the values are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in new:
                yield f"-{inner}={_show(old[key])}"
            elif key not in old:
                yield f"+{inner}={_show(new[key])}"
            else:
                yield from compare(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for n, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from compare(before, after, f"{path}[{n}]")
    elif isinstance(old, str) and isinstance(new, str):
        yield from _compare_texts(old, new, path)
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield f"{path}: {_show(old)} -> {_show(new)}"


def _compare_texts(old: str, new: str, path: str) -> Iterator[str]:
    if old == new:
        return
    if old.startswith(("{", "[")) and new.startswith(("{", "[")):
        before, after = read(old.encode()), read(new.encode())
        if not isinstance(before, str) and not isinstance(after, str):
            yield from compare(before, after, path)
            return
    if not _is_nearly_same(old, new) and not _is_redacted(old, new):
        yield f"{path}: {_show(old)} -> {_show(new)}"


def _is_nearly_same(old: str, new: str) -> bool:
    """Tell if only timestamps differ, and only a little."""
    if _TIMESTAMP.sub("", old) != _TIMESTAMP.sub("", new):
        return False
    before, after = _TIMESTAMP.findall(old), _TIMESTAMP.findall(new)
    return len(before) == len(after) and all(map(_are_near, before, after))


def _is_redacted(old: str, new: str) -> bool:
    """Tell if the texts are equal except for values that only the recording hides: those not from Secrets."""
    if PREFIX not in old or PREFIX in new:
        return False
    return re.fullmatch(".+".join(map(re.escape, _REDACTED.split(old))), new, re.DOTALL) is not None


def _are_near(old: str, new: str) -> bool:
    try:
        before, after = datetime.datetime.fromisoformat(old), datetime.datetime.fromisoformat(new)
        tolerance = _TOLERANCE if "." in old else 1 + _TOLERANCE
        return abs((before - after).total_seconds()) <= tolerance
    except (ValueError, TypeError):
        return old == new


def _show(value: Any) -> str:
    return shorten(codec.dumps(value), _MAX_SHOWN)
