"""
A Kubernetes object over the JSON bytes that it arrived in.

Kopf needs a dozen fields of the metadata for every event. Users need everything else, but for a few events only. So
Kopf decodes the "head" of the metadata at once, and the rest on demand. It never decodes the managed fields, often the
larger half of an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

import msgspec

from kopf._values import codec, malformed_json, oversized_objects
from kopf._values.patches import thaw


class ObjectMeta(msgspec.Struct):
    """The metadata that Kopf needs for every event of every object."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resourceVersion: str = ""
    generation: int | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None

    @property
    def key(self) -> str:
        """The identity of the object among its kind: the UID, or the name in APIs without UIDs."""
        return self.uid or f"{self.namespace or ''}/{self.name}"


class _Envelope(msgspec.Struct):
    metadata: ObjectMeta
    apiVersion: str | None = None
    kind: str | None = None


class _UsualEnvelope(_Envelope, forbid_unknown_fields=True):
    """
    All members of an object of a usual kind, found in one pass. Absent members are empty.

    The order of the content is that of the servers.
    """

    data: msgspec.Raw = msgspec.Raw()
    spec: msgspec.Raw = msgspec.Raw()
    type: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


_USUAL_STANZAS = frozenset({"data", "spec", "type", "status"})

_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_usual_envelope = msgspec.json.Decoder(_UsualEnvelope).decode
_NO_CONTENT = frozenset({"apiVersion", "kind", "metadata", "status"})
_WITHOUT_OTHERS = dict.fromkeys(_NO_CONTENT)
_NOTHING: Mapping[str, str] = {}
_ABSENT = object()
_UNWANTED_METADATA = frozenset({"managedFields"})
_IDENTIFIERS = frozenset({"uid", "resourceVersion"})  # other code joins them by spaces
_VERSIONS = frozenset({"apiVersion", "kind"})
_META_TYPES = get_type_hints(ObjectMeta)
_PRUNED_DEPTH = 32  # enough for all known metadata; Kopf ignores the rest of pruned objects
_MAX_DEPTH = 10_000  # as in API servers; most versions of Python decode less, but since 3.14, it depends on the stack
_MIN_DEEP = 2 * _MAX_DEPTH
"""Shorter objects are neither too deep nor too large, in bytes."""
TOO_DEEP = "it is nested too deeply"


class KubeObject(Mapping[str, Any]):
    """
    A read-only mapping over one object: cheap to build, decoded member by member.

    ``head`` is the decoded metadata. The values of the mapping are plain JSON values (dicts, lists, strings…), decoded
    on the first access and kept until forgotten. Do not modify them.

    ``pruned`` is the problem of an object that cannot be decoded; empty for all other objects. An object that is nested
    too deeply keeps only its upper levels; a malformed or too large one keeps only its valid metadata. Such an object
    has a head, but differs from the object in the cluster, so Kopf does not handle it.

    Large because it is a mapping, and only it knows its decoded parts.
    """

    __slots__ = ("_added", "_members", "_raw", "_usual", "_values", "api_version", "head", "kind", "pruned")

    head: ObjectMeta
    api_version: str | None
    kind: str | None

    def __init__(
        self,
        head: ObjectMeta,
        api_version: str | None,
        kind: str | None,
        raw: bytes | msgspec.Raw | None,
        added: Mapping[str, str] = _NOTHING,
        pruned: str = "",
    ) -> None:
        """``added`` are members that the raw object lacks."""
        self.pruned = pruned
        self._added = added
        self.head = head
        self.api_version = api_version
        self.kind = kind
        self._raw = raw
        # Only if there are no other members. It is kept, so that the order of the content is always the same.
        self._usual: _UsualEnvelope | None = None
        self._members: dict[str, msgspec.Raw] | None = None
        self._values: dict[str, Any] | None = None

    @classmethod
    def from_json(
        cls, raw: bytes | msgspec.Raw, *, api_version: str | None = None, kind: str | None = None
    ) -> KubeObject:
        """
        Wrap a serialised object; ``api_version`` & ``kind`` are for objects without them (items of a LIST).

        Raises :class:`ValueError` if it is not JSON or has no valid metadata.
        """
        usual, pruned = None, ""
        if len(raw) > _MIN_DEEP:
            raw, pruned = _reduce(raw)
        try:
            envelope: _Envelope = (usual := _decode_usual_envelope(raw))
        except (RecursionError, ValueError):
            envelope, raw, problem = _decode_unusual(raw)
            pruned = pruned or problem
        added = _NOTHING
        if not envelope.apiVersion or not envelope.kind:
            known = {"apiVersion": envelope.apiVersion or api_version, "kind": envelope.kind or kind}
            added = {key: value for key, value in known.items() if value is not None}
        self = cls(envelope.metadata, envelope.apiVersion or api_version, envelope.kind or kind, raw, added, pruned)
        self._usual = usual
        return self

    @classmethod
    def salvage(
        cls, raw: bytes | msgspec.Raw, *, api_version: str | None = None, kind: str | None = None
    ) -> KubeObject:
        """
        Wrap a serialised object as :meth:`from_json` does; a malformed one, with the valid part of its metadata.

        Raises :class:`msgspec.ValidationError` if the object has no valid name, and :class:`UnreadableError` if it is
        neither an object nor JSON.
        """
        try:
            obj = cls.from_json(raw, api_version=api_version, kind=kind)
            if obj.head.name and " " not in obj.head.uid and " " not in obj.head.resourceVersion:
                return obj
            problem = "there are spaces in the uid or in the version" if obj.head.name else "there is no name"
            problem = f"its metadata are malformed: {problem}"
        except oversized_objects.NamelessError:
            raise
        except msgspec.ValidationError as e:
            problem = f"its metadata are malformed: {e}"
        except ValueError as e:
            problem = f"it is malformed: {e}"
        content = bytes(raw)
        metadata, versions = _take_metadata(content)
        if not metadata.get("name"):
            if not content.startswith(b"{"):
                codec.decode(malformed_json.prune(content, _PRUNED_DEPTH))
            raise msgspec.ValidationError(problem)
        stub = cls.from_dict({"apiVersion": api_version, "kind": kind, **versions, "metadata": metadata})
        stub.pruned = problem
        return stub

    @classmethod
    def from_dict(cls, source: Mapping[str, Any]) -> KubeObject:
        """Wrap a decoded object. Raises :class:`ValueError` if it has no valid metadata."""
        envelope = msgspec.convert({"metadata": {}, **source}, _Envelope)
        self = cls(envelope.metadata, envelope.apiVersion, envelope.kind, None)
        self._values = {key: value for key, value in source.items() if value is not None}
        self._members = {}
        return self

    @property
    def size(self) -> int:
        """The size of the serialised object, in bytes; 0 if it did not arrive serialised."""
        return 0 if self._raw is None else memoryview(self._raw).nbytes

    @property
    def raw(self) -> bytes:
        """The serialised object, in its original form if it arrived serialised."""
        return codec.encode(dict(self)) if self._raw is None else bytes(self._raw)

    def for_users(self) -> KubeObject:
        """
        Make a view of the same content for the code of users, with its own decoded values.

        Lists & dicts are mutable. If users modify them, the object that Kopf keeps remains as the server sent it.
        """
        view = KubeObject(self.head, self.api_version, self.kind, self._raw, self._added, self.pruned)
        view._usual, view._members = self._usual, self._members  # these never change
        if self._raw is None:
            view._values = thaw(self._values)
        return view

    def make_compact(self) -> bytes:
        """Serialise the part that users can see, to keep it for long; a malformed object is kept whole."""
        try:
            members = codec.split_members(self.raw)
            metadata = codec.split_members(members["metadata"])
        except (KeyError, ValueError):
            return self.raw
        kept = {key: value for key, value in metadata.items() if key not in _UNWANTED_METADATA}
        encoded = codec.encode({**self._added, **members, "metadata": kept})
        return bytes(memoryview(encoded))  # a copy: the encoder leaves the unused part of its buffer allocated

    def make_stub(self, problem: str = "") -> KubeObject:
        """Make an object with only the metadata of this one; with the ``problem``, it counts as pruned."""
        metadata, _ = _take_metadata(self.raw)
        stub = KubeObject.from_dict({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata})
        stub.pruned = problem
        return stub

    def get_readable(self, key: str) -> dict[str, Any]:
        """Decode the members of the stanza, down to the pruned depth; unreadable ones are ``None``."""
        return _decode_members(_split_malformed(self.raw).get(key, b""))

    def check(self) -> None:
        """Decode the whole object. Raises :class:`UnreadableError` if that is impossible."""
        for key in self:
            self[key]

    def forget_values(self) -> None:
        """Drop the decoded values, which take several times more memory than the serialised ones."""
        if self._raw is not None:
            self._members = self._values = None

    def _split(self) -> tuple[dict[str, msgspec.Raw], dict[str, Any]]:
        members, values = self._members, self._values
        if members is None:
            members = self._split_anew(self._raw or b"{}")
            for key in self._added:
                members.pop(key, None)
            self._members = members
        if values is None:
            values = self._values = {**self._added}
        return members, values

    def _split_anew(self, raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
        try:
            return codec.split_members(raw)
        except codec.NestingError:
            if self._usual is None:
                raise
            # It was readable on arrival, when the call stack was shorter. It must not fail in the middle of the work.
            return {key: msgspec.Raw(value) for key, value in _split_malformed(bytes(raw)).items()}

    def find_raw(self, key: str) -> msgspec.Raw | None:
        """Get the serialised stanza; ``None`` if there is none."""
        if self._usual is not None and key in _USUAL_STANZAS:
            return getattr(self._usual, key) or None
        return self._split()[0].get(key)

    def __getitem__(self, key: str) -> Any:
        if (value := self.get(key, _ABSENT)) is _ABSENT:
            raise KeyError(key)
        return value

    def has_same_content(self, other: KubeObject) -> bool:
        """
        Compare all but the metadata & status of two objects, without decoding.

        If it returns true, the content is the same. If it returns false, the same content can be serialised in
        another way.
        """
        if self._raw is None or other._raw is None:
            return False
        mine, others = self._usual, other._usual
        if mine is not None and others is not None:
            return mine.spec == others.spec and mine.data == others.data and mine.type == others.type
        return {**self._split()[0], **_WITHOUT_OTHERS} == {**other._split()[0], **_WITHOUT_OTHERS}

    def is_serialised_as(self, stanza: str, content: bytes) -> bool:
        """Tell if the stanza arrived in exactly this form."""
        return (raw := self.find_raw(stanza)) is not None and bytes(raw) == content

    def get_content(self) -> dict[str, Any]:
        """
        Get all stanzas but the metadata & status, to serialise or compare them: if possible, in their original form.

        The server always serialises the same content in the same form.
        """
        if (usual := self._usual) is not None:  # one by one, as it is several times faster than a loop
            content: dict[str, Any] = {"data": usual.data} if usual.data else {}
            if usual.spec:
                content["spec"] = usual.spec
            if usual.type:
                content["type"] = usual.type
            return content
        members, values = self._split()
        source = values if self._raw is None else members
        return {key: value for key, value in source.items() if key not in _NO_CONTENT}

    def decode_content(self) -> None:
        """
        Decode all stanzas but the metadata & status in advance.

        Raises :class:`UnreadableError` if that is impossible.
        """
        if self._raw is None:
            return
        values = self._values = {**self._added} if self._values is None else self._values
        for key, raw in self.get_content().items():
            if key not in values:
                values[key] = codec.decode(raw)

    def could_have(self, stanza: str, key: str) -> bool:
        """Tell if the key could be in the stanza, without decoding. In doubt, returns true."""
        if self._raw is None:
            return stanza in (self._values or ())
        return key.encode() in bytes(raw) if (raw := self.find_raw(stanza)) else False

    def get(self, key: str, default: Any = None) -> Any:
        if (values := self._values) is None:
            values = self._values = {**self._added}
        if key not in values:
            if (raw := self.find_raw(key)) is None:
                return default
            values[key] = _decode_member(key, raw)
        return values[key]

    def __contains__(self, key: object) -> bool:
        members, values = self._split()
        return key in values or key in members

    def __iter__(self) -> Iterator[str]:
        members, values = self._split()
        return iter({**self._added, **members, **values})  # in this order, regardless of the order of decoding

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def _decode_unusual(raw: bytes | msgspec.Raw) -> tuple[_Envelope, bytes | msgspec.Raw, str]:
    """Decode the members that all objects have. If the object is too deep, prune it, and add the problem."""
    try:
        return _decode_envelope(raw), raw, ""
    except RecursionError:
        raw = malformed_json.prune(bytes(raw), _PRUNED_DEPTH)
        return _decode_envelope(raw), raw, TOO_DEEP


def _reduce(raw: bytes | msgspec.Raw) -> tuple[bytes | msgspec.Raw, str]:
    """Reduce an object that takes too much memory or is nested too deeply, and add the problem."""
    raw, pruned = oversized_objects.reduce(raw)
    if len(raw) > _MIN_DEEP and malformed_json.is_deeper(bytes(raw), _MAX_DEPTH):
        return malformed_json.prune(bytes(raw), _PRUNED_DEPTH), TOO_DEEP
    return raw, pruned


def _is_proper(key: str, value: object) -> bool:
    """Tell if the value in the metadata is known and valid."""
    try:
        msgspec.convert(value, _META_TYPES[key])
    except (KeyError, msgspec.ValidationError):
        return False
    return key not in _IDENTIFIERS or " " not in str(value)


def _take_metadata(raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Take the valid part of the metadata of a malformed object, and its API version & kind."""
    members = _split_malformed(raw)
    versions = {key: _try_to_decode(members[key]) for key in _VERSIONS & members.keys()}
    metadata = _decode_members(members.get("metadata", b"")).items()
    proper = {key: value for key, value in metadata if _is_proper(key, value)}
    return proper, {key: value for key, value in versions.items() if isinstance(value, str)}


def _decode_members(raw: bytes) -> dict[str, Any]:
    """Decode all members, down to the pruned depth; unreadable ones are ``None``."""
    return {name: _try_to_decode(value) for name, value in _split_malformed(raw).items()}


def _split_malformed(raw: bytes) -> dict[str, bytes]:
    members = {_try_to_decode(name): value for name, value in malformed_json.split_members(raw)}
    return {name: value for name, value in members.items() if isinstance(name, str)}


def _try_to_decode(raw: bytes) -> Any:
    try:
        return codec.decode(malformed_json.prune(raw, _PRUNED_DEPTH))
    except ValueError:
        return None


def _decode_member(name: str, raw: msgspec.Raw) -> Any:
    if name != "metadata":
        return codec.decode(raw)
    members = codec.split_members(raw)
    return {key: codec.decode(value) for key, value in members.items() if key not in _UNWANTED_METADATA}
