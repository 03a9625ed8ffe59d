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
from kopf._values.fields import resolve
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch

MAX_LENGTH = 63
_HASH_LENGTH = 6
_SAFE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_UNSAFE_CHARS = re.compile(r"[^-A-Za-z0-9_.]+")
_COPIED = "-ofDRS"
"""The mark of the keys on objects with copied annotations; as of the original framework."""
_OWNERS = ("metadata", "ownerReferences")
_MARKER = "kopf-managed"
_SUFFIX = f"/{_MARKER}"
KNOWN_PREFIXES = frozenset({"kopf.zalando.org"})
_UNMARKED_PREFIXES = frozenset({"kopf.zalando.org", "kopf.dev"})


class AnnotationNaming:
    """
    Forms the names of annotations under one prefix: a part of those storages that keep anything there.

    The names of the methods are what the descendants of the storages in existing operators call and override.
    """

    def __init__(self, *, prefix: str | None, v1: bool = True) -> None:
        self.prefix = prefix
        self.v1 = v1
        self._cache: dict[str, tuple[str, ...]] = {}

    def make_keys(self, key: str, *, body: Body | None = None) -> tuple[str, ...]:
        """All names for the key, the preferred (v2) one first, then the older (v1) one if it differs."""
        if body is not None:
            key = self.mark_key(key, body=body)
        try:
            return self._cache[key]
        except KeyError:
            names = [self.make_v2_key(key), *([self.make_v1_key(key)] if self.v1 and self._has_v1 else [])]
            result = self._cache[key] = tuple(dict.fromkeys(names))
            return result

    def make_all_keys(self, key: str) -> tuple[str, ...]:
        """All names for the key on objects of any kind."""
        return (*self.make_keys(key), *self.make_keys(f"{key}{_COPIED}"))

    def mark_key(self, key: str, *, body: Body) -> str:
        """Tell the state of a ReplicaSet from the one of its Deployment, whose annotations are copied there."""
        return f"{key}{_COPIED}" if has_copied_annotations(body.object) else key

    def make_v2_key(self, key: str, max_length: int = MAX_LENGTH) -> str:
        """The key is limited alone; what is cut off is replaced by a hash of the key as given."""
        return self._join(_cut(self.make_safe_key(key), self.make_suffix(key), max_length))

    def make_v1_key(self, key: str, max_length: int = MAX_LENGTH) -> str:
        """The older form: the prefix and its slash count towards the limit too."""
        safe = self.make_safe_key(key)
        return self._join(_cut(safe, self.make_suffix(safe), max_length - self._prefix_length))

    @staticmethod
    def make_safe_key(key: str) -> str:
        """Replace what cannot be in the names of annotations."""
        # The brackets come from the names of nested functions: `factory.<locals>.fn`.
        dotted = key.replace("/", ".").replace("<", "_").replace(">", "_")
        if _SAFE.fullmatch(dotted):
            return dotted
        cleaned = _UNSAFE_CHARS.sub("-", dotted).strip("-_.")
        return f"{cleaned or 'handler'}-{_hash(key)}"

    def make_suffix(self, key: str) -> str:
        """What the keys end with that are cut."""
        return f"-{_hash(key)}"

    @property
    def _prefix_length(self) -> int:
        return len(self.prefix) + 1 if self.prefix else 0

    @property
    def _has_v1(self) -> bool:
        """With very long prefixes, the older form had no room even for the hash, so nothing was ever stored so."""
        return MAX_LENGTH - self._prefix_length > _HASH_LENGTH + 1

    def _join(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key


def has_copied_annotations(obj: KubeObject) -> bool:
    """Tell if Kubernetes copies the annotations of another object to this one: of a Deployment to its ReplicaSets."""
    if obj.kind != "ReplicaSet":  # at once: it is asked of every object
        return False
    return any(owner.get("kind") == "Deployment" for owner in resolve(obj, _OWNERS) or ())


def _cut(key: str, suffix: str, limit: int) -> str:
    return key if len(key) <= limit else f"{key[: limit - len(suffix)]}{suffix}"


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
