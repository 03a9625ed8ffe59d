"""
A Kubernetes object over the JSON bytes it arrived in.

The engine needs a dozen fields of the metadata for every event, and users need everything else for a few events
only. So the metadata "head" is decoded eagerly into a slotted structure, and the rest stays as raw JSON
until somebody looks. Managed fields, often the larger half of an object, are never built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

import msgspec

from kopf._values import codec, malformed_json, oversized_objects
from kopf._values.patches import thaw


class ObjectMeta(msgspec.Struct):
    """The part of the metadata that the framework needs for every event of every object."""

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
        """What tells the object from all others of its kind: the uid; the name if there is none, as in some APIs."""
        return self.uid or f"{self.namespace or ''}/{self.name}"


class _Envelope(msgspec.Struct):
    metadata: ObjectMeta
    apiVersion: str | None = None
    kind: str | None = None


class _UsualEnvelope(_Envelope, forbid_unknown_fields=True):
    """
    All members of an object of a usual kind: one pass finds them all. Those that are absent are empty.

    The order of the content is that in which the servers send it.
    """

    data: msgspec.Raw = msgspec.Raw()
    spec: msgspec.Raw = msgspec.Raw()
    type: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


_USUAL_STANZAS = frozenset({"data", "spec", "type", "status"})

_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_usual_envelope = msgspec.json.Decoder(_UsualEnvelope).decode
_split_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_CONTENT = frozenset({"apiVersion", "kind", "metadata", "status"})
_WITHOUT_OTHERS = dict.fromkeys(_NO_CONTENT)
_NOTHING: Mapping[str, str] = {}
_ABSENT = object()
_UNWANTED_METADATA = frozenset({"managedFields"})
_IDENTIFIERS = frozenset({"uid", "resourceVersion"})  # they are joined by spaces where many of them are remembered
_VERSIONS = frozenset({"apiVersion", "kind"})
_META_TYPES = get_type_hints(ObjectMeta)
_PRUNED_DEPTH = 32  # enough for all that is known of the metadata; nobody looks at the rest of what is pruned
TOO_DEEP = "it is nested too deeply"


class KubeObject(Mapping[str, Any]):
    """
    A read-only mapping over one object: cheap to build, decoded member by member.

    ``head`` is the eagerly decoded metadata. Values of the mapping are plain JSON values (dicts, lists,
    strings…), built on the first access and then kept until forgotten; they must not be modified.

    Objects that cannot be decoded are ``pruned``, with the problem in words (empty if nothing is wrong): of those that
    are nested too deeply, only the upper levels are left; of those that are malformed or too large, only the proper
    metadata. They have their heads, but are not what is in the cluster, and are not to be handled.

    Large because it is a mapping, and only it knows what is decoded already.
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
        """``added`` is what the raw object lacks."""
        self.pruned = pruned
        self._added = added
        self.head = head
        self.api_version = api_version
        self.kind = kind
        self._raw = raw
        # If there are no other members. It is small, and kept: the content is in the same order whenever it is taken.
        self._usual: _UsualEnvelope | None = None
        self._members: dict[str, msgspec.Raw] | None = None
        self._values: dict[str, Any] | None = None

    @classmethod
    def from_json(
        cls, raw: bytes | msgspec.Raw, *, api_version: str | None = None, kind: str | None = None
    ) -> KubeObject:
        """
        Wrap a serialised object; ``api_version`` & ``kind`` fill in where the object has none (items of a LIST).

        Raises :class:`ValueError` if it is not JSON or has no proper metadata.
        """
        usual, pruned = None, ""
        if len(raw) > oversized_objects.MIN_LARGE:
            raw, pruned = oversized_objects.reduce(raw)
        try:
            envelope: _Envelope = (usual := _decode_usual_envelope(raw))
        except (RecursionError, ValueError):
            envelope, raw, pruned = _decode_unusual(raw)
        added = _NOTHING
        if not envelope.apiVersion or not envelope.kind:
            added = _list_absent(envelope, api_version, kind)
        self = cls(envelope.metadata, envelope.apiVersion or api_version, envelope.kind or kind, raw, added, pruned)
        self._usual = usual
        return self

    @classmethod
    def salvage(
        cls, raw: bytes | msgspec.Raw, *, api_version: str | None = None, kind: str | None = None
    ) -> KubeObject:
        """
        Wrap a serialised object as :meth:`from_json` does; if it is malformed, with what is proper of its metadata.

        If it has no proper name, so it is unknown which object it is, raises :class:`msgspec.ValidationError`, or
        :class:`UnreadableError` if it is neither an object nor JSON.
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
        """Wrap an already decoded object. Raises :class:`ValueError` if it has no proper metadata."""
        envelope = msgspec.convert({"metadata": {}, **source}, _Envelope)
        self = cls(envelope.metadata, envelope.apiVersion, envelope.kind, None)
        self._values = {key: value for key, value in source.items() if value is not None}
        self._members = {}
        return self

    @property
    def size(self) -> int:
        """How much memory it holds, serialised, in bytes; 0 if it did not arrive so."""
        return 0 if self._raw is None else memoryview(self._raw).nbytes

    @property
    def raw(self) -> bytes:
        """The serialised object: as it arrived, if it arrived serialised."""
        return codec.encode(dict(self)) if self._raw is None else bytes(self._raw)

    def for_users(self) -> KubeObject:
        """
        Give another view of the same content, to be seen by the code of users: it decodes the values anew. So, when
        they modify them (lists & dicts are plain mutable objects), we do not take it for what the server has said.
        """
        view = KubeObject(self.head, self.api_version, self.kind, self._raw, self._added, self.pruned)
        if self._raw is None:
            view._values = thaw(self._values)
            view._members = {}
        else:
            view._usual, view._members = self._usual, self._members  # they are never changed
        return view

    def make_compact(self) -> bytes:
        """Serialise what users can see of it: to be kept for long, and wrapped again. If it is malformed, all of it."""
        try:
            members = dict(_split(self.raw))
            metadata = _split(members["metadata"])
        except (KeyError, ValueError):
            return self.raw
        kept = {key: value for key, value in metadata.items() if key not in _UNWANTED_METADATA}
        encoded = codec.encode({**self._added, **members, "metadata": kept})
        return bytes(memoryview(encoded))  # a copy: the encoder leaves the unused part of its buffer allocated

    def make_stub(self, problem: str = "") -> KubeObject:
        """Make the same object with nothing but the metadata. With the problem, it is still what cannot be decoded."""
        metadata, _ = _take_metadata(self.raw)
        stub = KubeObject.from_dict({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata})
        stub.pruned = problem
        return stub

    def get_readable(self, key: str) -> dict[str, Any]:
        """Get those members of the stanza that can be decoded, as deep as it is of use; the others are ``None``."""
        return _decode_members(_split_malformed(self.raw).get(key, b""))

    def check(self) -> None:
        """Decode all of it. Raises :class:`UnreadableError` if that is impossible."""
        for key in self:
            self[key]

    def forget_values(self) -> None:
        """Drop what was decoded, to be decoded anew if needed: decoded, an object takes several times more memory."""
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
            return _split(raw)
        except codec.NestingError:
            if self._usual is None:
                raise
            # It was split when it arrived, with fewer calls underway, and is not to fail in the middle of everything.
            return {key: msgspec.Raw(value) for key, value in _split_malformed(bytes(raw)).items()}

    def find_raw(self, key: str) -> msgspec.Raw | None:
        """Get the stanza as it arrived, with nothing decoded; ``None`` if there is none."""
        if self._usual is not None and key in _USUAL_STANZAS:
            return getattr(self._usual, key) or None
        return self._split()[0].get(key)

    def __getitem__(self, key: str) -> Any:
        if (value := self.get(key, _ABSENT)) is _ABSENT:
            raise KeyError(key)
        return value

    def has_same_content(self, other: KubeObject) -> bool:
        """
        Tell if the objects are the same in all but the metadata & status, with nothing decoded. It can say no if they
        are serialised differently, but if it says yes, they are the same.
        """
        if self._raw is None or other._raw is None:
            return False
        mine, others = self._usual, other._usual
        if mine is not None and others is not None:
            return mine.spec == others.spec and mine.data == others.data and mine.type == others.type
        return {**self._split()[0], **_WITHOUT_OTHERS} == {**other._split()[0], **_WITHOUT_OTHERS}

    def is_serialised_as(self, stanza: str, content: bytes) -> bool:
        """Tell if the stanza has arrived in this very form, with nothing decoded."""
        return (raw := self.find_raw(stanza)) is not None and bytes(raw) == content

    def get_content(self) -> dict[str, Any]:
        """
        Get all stanzas but the metadata & status, to be serialised or compared: where possible, as they have arrived.

        The server says how they are serialised, so the same content comes in the same form.
        """
        if self._usual is not None:
            return _list_usual_content(self._usual)
        members, values = self._split()
        source = values if self._raw is None else members
        return {key: value for key, value in source.items() if key not in _NO_CONTENT}

    def decode_content(self) -> None:
        """
        Decode all stanzas but the metadata & status, to be looked at afterwards.

        Raises :class:`UnreadableError` if that is impossible.
        """
        if self._raw is None:
            return
        values = self._values = {**self._added} if self._values is None else self._values
        for key, raw in self.get_content().items():
            if key not in values:
                values[key] = codec.decode(raw)

    def could_have(self, stanza: str, key: str) -> bool:
        """Tell if the key could be in the stanza, which is not decoded for that. If in doubt, it is yes."""
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
        return iter({**self._added, **members, **values})  # in this order, whatever was decoded first

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


def _list_usual_content(envelope: _UsualEnvelope) -> dict[str, Any]:
    content: dict[str, Any] = {"data": envelope.data} if envelope.data else {}
    if envelope.spec:
        content["spec"] = envelope.spec
    if envelope.type:
        content["type"] = envelope.type
    return content  # one by one, as it is several times faster than a loop


def _decode_unusual(raw: bytes | msgspec.Raw) -> tuple[_Envelope, bytes | msgspec.Raw, str]:
    """Decode only what is in each object, and prune the object if it is too deep; then, with the problem."""
    try:
        return _decode_envelope(raw), raw, ""
    except RecursionError:
        raw = malformed_json.prune(bytes(raw), _PRUNED_DEPTH)
        return _decode_envelope(raw), raw, TOO_DEEP


def _list_absent(envelope: _Envelope, api_version: str | None, kind: str | None) -> dict[str, str]:
    """Take what the object does not say of itself, but what is known from elsewhere."""
    known = {"apiVersion": envelope.apiVersion or api_version, "kind": envelope.kind or kind}
    return {key: value for key, value in known.items() if value is not None}


def _is_proper(key: str, value: object) -> bool:
    """Tell if the value in the metadata is as it must be. What we know nothing of, is dropped: nobody will need it."""
    try:
        msgspec.convert(value, _META_TYPES[key])
    except (KeyError, msgspec.ValidationError):
        return False
    return key not in _IDENTIFIERS or " " not in str(value)


def _take_metadata(raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Take what is proper of the metadata of a malformed object, and its API version & kind, whatever else there is."""
    members = _split_malformed(raw)
    versions = {key: _try_to_decode(members[key]) for key in _VERSIONS & members.keys()}
    metadata = _decode_members(members.get("metadata", b"")).items()
    proper = {key: value for key, value in metadata if _is_proper(key, value)}
    return proper, {key: value for key, value in versions.items() if isinstance(value, str)}


def _decode_members(raw: bytes) -> dict[str, Any]:
    """Decode all members that can be decoded, as deep as it is of use; the others are ``None``."""
    return {name: _try_to_decode(value) for name, value in _split_malformed(raw).items()}


def _split_malformed(raw: bytes) -> dict[str, bytes]:
    members = {_try_to_decode(name): value for name, value in malformed_json.split_members(raw)}
    return {name: value for name, value in members.items() if isinstance(name, str)}


def _try_to_decode(raw: bytes) -> Any:
    try:
        return codec.decode(malformed_json.prune(raw, _PRUNED_DEPTH))
    except ValueError:
        return None


def _split(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _split_members(raw)
    except RecursionError as e:  # it was decodable when it arrived, with fewer calls underway
        raise codec.NestingError from e
    except ValueError as e:  # the names of the members are not in UTF-8
        raise codec.UnreadableError(str(e)) from e


def _decode_member(name: str, raw: msgspec.Raw) -> Any:
    if name != "metadata":
        return codec.decode(raw)
    members = _split(raw)
    return {key: codec.decode(value) for key, value in members.items() if key not in _UNWANTED_METADATA}
