"""
Names of the annotations that keep our state on the objects.

A name of an annotation is ``prefix/key``, where the key is up to 63 characters of ``[-A-Za-z0-9_.]`` that begins
and ends with a letter or digit (Kubernetes: "qualified names"). Ids of handlers know no such limits.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Collection, Iterable

from kopf._values.bodies import Body
from kopf._values.patches import Patch

MAX_LENGTH = 63
_HASH_LENGTH = 6
_SAFE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_UNSAFE_CHARS = re.compile(r"[^-A-Za-z0-9_.]+")
_MARKER = "kopf-managed"
_SUFFIX = f"/{_MARKER}"
KNOWN_PREFIXES = frozenset({"kopf.zalando.org"})
_UNMARKED_PREFIXES = frozenset({"kopf.zalando.org", "kopf.dev"})


class AnnotationNaming:
    """Forms the names of annotations under one prefix."""

    def __init__(self, *, prefix: str | None, v1: bool = True) -> None:
        self.prefix = prefix
        self.v1 = v1
        self._cache: dict[str, tuple[str, ...]] = {}

    @property
    def _v1_limit(self) -> int:
        return MAX_LENGTH - (len(self.prefix) + 1 if self.prefix else 0)

    @property
    def _has_v1(self) -> bool:
        """With very long prefixes, the older form had no room even for the hash, so nothing was ever stored so."""
        return self._v1_limit > _HASH_LENGTH + 1

    def make_keys(self, key: str) -> tuple[str, ...]:
        """All names for the key, the preferred (v2) one first, then the older (v1) one if it differs."""
        try:
            return self._cache[key]
        except KeyError:
            names = [self.make_v2_key(key), *([self.make_v1_key(key)] if self.v1 and self._has_v1 else [])]
            result = self._cache[key] = tuple(dict.fromkeys(names))
            return result

    def make_v2_key(self, key: str) -> str:
        """The key is limited alone; what is cut off is replaced by a hash of the key as given."""
        safe = _make_safe(key)
        return self._join(safe if len(safe) <= MAX_LENGTH else _cut(safe, _hash(key), MAX_LENGTH))

    def make_v1_key(self, key: str) -> str:
        """The older form: the prefix and its slash count towards the limit too."""
        safe = _make_safe(key)
        limit = self._v1_limit
        return self._join(safe if len(safe) <= limit else _cut(safe, _hash(safe), limit))

    def _join(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key


def _make_safe(key: str) -> str:
    # The brackets come from the names of nested functions: `factory.<locals>.fn`.
    dotted = key.replace("/", ".").replace("<", "_").replace(">", "_")
    if _SAFE.fullmatch(dotted):
        return dotted
    cleaned = _UNSAFE_CHARS.sub("-", dotted).strip("-_.")
    return f"{cleaned or 'handler'}-{_hash(key)}"


def _cut(key: str, suffix: str, limit: int) -> str:
    return f"{key[: limit - len(suffix) - 1]}-{suffix}"


def _hash(text: str) -> str:
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=4).digest()
    return base64.b64encode(digest, altchars=b"-.").decode("ascii").rstrip("=-.")


def mark_prefix(prefix: str | None, *, body: Body, patch: Patch) -> None:
    """Mark a custom prefix on the object, so that other operators leave its annotations out of their essence."""
    if prefix is None or prefix in _UNMARKED_PREFIXES:
        return
    marker = f"{prefix}/{_MARKER}"
    if marker not in (body.object.head.annotations or {}) and marker not in patch.metadata.annotations:
        patch.metadata.annotations[marker] = "yes"


def list_managed_prefixes(annotations: Iterable[str]) -> Collection[str]:
    """The prefixes of this and other operators of this framework, whose annotations are not essential."""
    marked = {name[: -len(_SUFFIX)] for name in annotations if name.endswith(_SUFFIX)}
    return marked | KNOWN_PREFIXES if marked else KNOWN_PREFIXES


@functools.lru_cache(maxsize=10_000)  # there are few names on very many objects
def is_mark(name: str) -> bool:
    """Tell if the annotation marks the prefix of an operator as managed by the framework."""
    return name.endswith(_SUFFIX)
