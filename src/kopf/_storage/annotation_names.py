"""
Names of the annotations that keep the state of Kopf on objects.

The name of an annotation is ``prefix/key``. The key has at most 63 characters of ``[-A-Za-z0-9_.]``, and begins and
ends with a letter or a digit (Kubernetes: "qualified names"). Ids of handlers have no such limits.
"""

from __future__ import annotations

import base64
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
"""The mark of keys on objects with copied annotations, as in the original framework."""
_OWNERS = ("metadata", "ownerReferences")
_MARKER = "kopf-managed"
_SUFFIX = f"/{_MARKER}"
KNOWN_PREFIXES = frozenset({"kopf.zalando.org"})
_UNMARKED_PREFIXES = frozenset({"kopf.zalando.org", "kopf.dev"})


class AnnotationNaming:
    """
    The names of annotations with one prefix: a base class of storages that use annotations.

    Subclasses of storages in existing operators call and override these methods.

    :param prefix: the prefix of all names, e.g. ``my-operator.example.com``.
    :param v1: whether to use the older form of names, too, for compatibility with older operators.

    Raises :class:`ValueError` without a prefix: nothing would tell our annotations from those of others.
    """

    def __init__(self, *, prefix: str, v1: bool = True) -> None:
        if not prefix:
            raise ValueError("Storages in annotations need a prefix, e.g. prefix='my-operator.example.com'.")
        self.prefix = prefix
        self.v1 = v1
        self._cache: dict[str, tuple[str, ...]] = {}

    def make_keys(self, key: str, *, body: Body | None = None) -> tuple[str, ...]:
        """Make all names for the key: the preferred (v2) one first, then the older (v1) one if it differs."""
        if body is not None:
            key = self.mark_key(key, body=body)
        try:
            return self._cache[key]
        except KeyError:
            names = [self.make_v2_key(key), *([self.make_v1_key(key)] if self.v1 and self._has_v1 else [])]
            result = self._cache[key] = tuple(dict.fromkeys(names))
            return result

    def make_all_keys(self, key: str) -> tuple[str, ...]:
        """Make all names for the key on objects of any kind."""
        return (*self.make_keys(key), *self.make_keys(f"{key}{_COPIED}"))

    def mark_key(self, key: str, *, body: Body) -> str:
        """Mark the key on ReplicaSets: Kubernetes copies the annotations of their Deployments to them."""
        return f"{key}{_COPIED}" if has_copied_annotations(body.object) else key

    def make_v2_key(self, key: str, max_length: int = MAX_LENGTH) -> str:
        """Make a name with a limit for the key alone. A hash of the given key replaces the cut part."""
        return self._join(_cut(self.make_safe_key(key), self.make_suffix(key), max_length))

    def make_v1_key(self, key: str, max_length: int = MAX_LENGTH) -> str:
        """Make a name in the older form, with a limit for the whole name."""
        safe = self.make_safe_key(key)
        return self._join(_cut(safe, self.make_suffix(safe), max_length - self._prefix_length))

    @staticmethod
    def make_safe_key(key: str) -> str:
        """Replace all characters that names of annotations cannot have."""
        # Names of nested functions have brackets: `factory.<locals>.fn`.
        dotted = key.replace("/", ".").replace("<", "_").replace(">", "_")
        if _SAFE.fullmatch(dotted):
            return dotted
        cleaned = _UNSAFE_CHARS.sub("-", dotted).strip("-_.")
        return f"{cleaned or 'handler'}-{_hash(key)}"

    def make_suffix(self, key: str) -> str:
        """Make the end of a cut key."""
        return f"-{_hash(key)}"

    @property
    def _prefix_length(self) -> int:
        return len(self.prefix) + 1

    @property
    def _has_v1(self) -> bool:
        """Whether the older form has room for the hash. Without it, nothing was ever stored in this form."""
        return MAX_LENGTH - self._prefix_length > _HASH_LENGTH + 1

    def _join(self, key: str) -> str:
        return f"{self.prefix}/{key}"


def has_copied_annotations(obj: KubeObject) -> bool:
    """Tell if Kubernetes copies the annotations of another object to this one: from a Deployment to its ReplicaSets."""
    if obj.kind != "ReplicaSet":  # first, for speed: every object gets here
        return False
    return any(owner.get("kind") == "Deployment" for owner in resolve(obj, _OWNERS) or ())


def _cut(key: str, suffix: str, limit: int) -> str:
    return key if len(key) <= limit else f"{key[: limit - len(suffix)]}{suffix}"


def _hash(text: str) -> str:
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=4).digest()
    return base64.b64encode(digest, altchars=b"-.").decode("ascii").rstrip("=-.")


def mark_prefix(prefix: str, *, body: Body, patch: Patch) -> None:
    """Mark a custom prefix on the object, so that other operators ignore its annotations."""
    if prefix in _UNMARKED_PREFIXES:
        return
    marker = f"{prefix}/{_MARKER}"
    if marker not in (body.object.head.annotations or {}) and marker not in patch.metadata.annotations:
        patch.metadata.annotations[marker] = "yes"


def list_managed_prefixes(annotations: Iterable[str]) -> Collection[str]:
    """List the prefixes of all operators with this framework: their annotations are not essential."""
    marked = {name[: -len(_SUFFIX)] for name in annotations if is_mark(name)}
    return marked | KNOWN_PREFIXES if marked else KNOWN_PREFIXES


def is_mark(name: str) -> bool:
    """Tell if the annotation marks the prefix of an operator."""
    return name.endswith(_SUFFIX)
