"""
Conversion of custom resources between versions: by webhooks, or by nothing but the names of the versions.

Objects are stored in one version, and converted on requests in another one. The results of webhooks (which answer a
``ConversionReview`` of ``apiextensions.k8s.io/v1``) are remembered for a while, as the states of objects never change.
Missing conversions are questions of the session, see `sessions`.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import msgspec

from kopf_cluster import codec, sessions, statuses
from kopf_cluster.admission.webhook_calls import Caller, CallError
from kopf_cluster.custom_resources.pruning import prune, prune_embedded
from kopf_cluster.kinds import objects, schemas
from kopf_cluster.kinds.kind import Converter, Kind, Obj
from kopf_cluster.kinds.schemas import Schema
from kopf_cluster.store.watch_cache import Record

TIMEOUT: Final = 30.0
"""The timeout of a conversion, in seconds; as in kube-apiserver."""

# The maximal number of remembered states; a bigger list is remembered as a whole until the next conversion.
_REMEMBERED: Final = 10_000

_Key = tuple[str, bytes]

# The metadata that a conversion may change.
_FREE: Final = ("labels", "annotations")


class Result(msgspec.Struct):
    status: str = ""
    message: str = ""


class Response(msgspec.Struct):
    uid: str = ""
    convertedObjects: list[Any] | None = None
    result: Result = msgspec.field(default_factory=Result)


class _Review(msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    response: Response | None = None


class PruningConverter(Converter):
    """Gives objects another version, and drops the fields that this version does not know: the strategy ``None``."""

    def __init__(self, versions: Mapping[str, Schema]) -> None:
        self._versions = versions

    def read(self, kind: Kind, record: Record) -> bytes:
        if record.form in ("", kind.version):
            return record.data
        return codec.encode(_fit(codec.decode(b"{" + record.data), self._versions[kind.version]))[1:]

    def write(self, kind: Kind, obj: Obj) -> Obj:
        return _fit(codec.decode(codec.encode(obj)), self._versions[kind.storage_version], defaults=True)


class WebhookConverter(Converter):
    """Converts the objects of one definition by its webhook.

    As in a real server, an object is validated in the version of the request; then it is converted into the stored
    version, and pruned there; and the answer to the write, too, is converted from what is stored.
    """

    converts = True

    def __init__(self, definition: Obj, versions: Mapping[str, Schema], caller: Caller) -> None:
        spec = definition["spec"]
        webhook = spec["conversion"]["webhook"]
        known = webhook.get("conversionReviewVersions") or ()
        self._config: Obj = webhook.get("clientConfig") or {}
        self._review_version = next((name for name in known if name in ("v1", "v1beta1")), "v1")
        self._group, self._kind = spec["group"], spec["names"]["kind"]
        self._versions = versions
        self._caller = caller
        self._read: dict[_Key, bytes] = {}
        self._written: dict[bytes, tuple[Obj, Obj]] = {}

    def require(self, kind: Kind, records: Iterable[Record], *, fresh: bool = False) -> None:
        """Have the records in the version of the kind: one call of the webhook converts all that are not remembered."""
        wanted = {_key(kind, record): record for record in records if record.form not in ("", kind.version)}
        missing = {key: record for key, record in wanted.items() if fresh or key not in self._read}
        if missing:
            question = ("convert", fresh, kind.version, tuple(missing))
            self._read |= sessions.ask(question, lambda: self._convert_records(kind, missing, wanted))

    def read(self, kind: Kind, record: Record) -> bytes:
        """Return the encoded object, with no version and kind, as it is in the version of the kind."""
        if record.form in ("", kind.version):
            return record.data
        self.require(kind, [record])
        return self._read[_key(kind, record)]

    def write(self, kind: Kind, obj: Obj) -> Obj:
        return self._convert_there_and_back(kind, obj)[0]

    def remember(self, kind: Kind, obj: Obj, record: Record) -> None:
        """Remember the new state as it is read back, so that the answer to the write needs no further conversion."""
        if len(self._read) >= _REMEMBERED:
            del self._read[next(iter(self._read))]
        served = self._convert_there_and_back(kind, obj)[1]
        self._read[_key(kind, record)] = objects.encode_body(served, record.revision)

    def _convert_there_and_back(self, kind: Kind, obj: Obj) -> tuple[Obj, Obj]:
        """Return the object in the stored version, and as it is read back from there; both without revisions."""
        metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
        key = codec.encode(bare := {**obj, "metadata": metadata})
        if (known := self._written.get(key)) is None:
            known = sessions.ask(("store", key), lambda: self._convert_new(kind, bare, key))
        return known

    async def _convert_records(
        self, kind: Kind, records: Mapping[_Key, Record], wanted: Container[object]
    ) -> dict[_Key, bytes]:
        """Convert the records and remember them. Forget old states instead, but none of the wanted ones."""
        objs = []
        for record in records.values():
            obj = codec.decode(b"{" + record.data)
            obj["metadata"].pop("resourceVersion", None)  # a real server takes it from etcd after the conversion
            objs.append({"apiVersion": f"{self._group}/{record.form}", "kind": self._kind, **obj})
        converted = zip(records.items(), await self._convert(kind.version, objs), strict=True)
        bodies = {key: objects.encode_body(obj, record.revision) for (key, record), obj in converted}
        spare = [key for key in self._read if key not in wanted]
        for key in spare[: max(len(self._read) + len(records) - _REMEMBERED, 0)]:
            del self._read[key]
        self._read |= bodies
        return bodies

    async def _convert_new(self, kind: Kind, obj: Obj, key: bytes) -> tuple[Obj, Obj]:
        (stored,) = await self._convert(kind.storage_version, [obj])
        schemas.fill_defaults(stored, self._versions[kind.storage_version])
        (served,) = await self._convert(kind.version, [stored])
        for old in list(self._written)[: max(len(self._written) + 1 - _REMEMBERED // 100, 0)]:
            del self._written[old]
        self._written[key] = stored, served
        return stored, served

    async def _convert(self, version: str, objs: list[Obj]) -> list[Obj]:
        """Call the webhook, or raise the refusal with which the API answers if that fails."""
        review: Obj = {
            "apiVersion": f"apiextensions.k8s.io/{self._review_version}",
            "kind": "ConversionReview",
            "request": {"uid": str(uuid.uuid4()), "desiredAPIVersion": f"{self._group}/{version}", "objects": objs},
        }
        try:
            body = await self._caller.call(self._config, review, TIMEOUT)
            converted = _read_response(review, body)
        except (CallError, ConversionError) as error:
            what = f"failed: {error}" if isinstance(error, CallError) else error
            raise statuses.unknown_error(
                f"conversion webhook for {objs[0]['apiVersion']}, Kind={self._kind} {what}"
            ) from None
        return [_fit(obj, self._versions[version]) for obj in converted]


def _read_response(review: Obj, body: bytes) -> list[Obj]:
    try:
        answer = msgspec.json.decode(body, type=_Review)
    except msgspec.MsgspecError as error:
        raise ConversionError(f"failed: invalid response: {error}") from None
    response, request = answer.response, review["request"]
    if response is None or (answer.apiVersion, answer.kind) != (review["apiVersion"], review["kind"]):
        raise ConversionError(
            f"failed: expected webhook response of {review['apiVersion']}, Kind=ConversionReview, "
            f"got {answer.apiVersion}, Kind={answer.kind}"
        )
    if response.uid != request["uid"]:
        raise ConversionError(f'failed: expected response.uid="{request["uid"]}", got "{response.uid}"')
    if response.result.status != "Success":
        why = response.result.message or f"response.result.status was '{response.result.status}', not 'Success'"
        raise ConversionError(f"failed: {why}")
    converted = response.convertedObjects or []
    if len(converted) != len(request["objects"]):
        raise ConversionError(f"returned {len(converted)} objects, expected {len(request['objects'])}")
    return [
        _restore_metadata(request["desiredAPIVersion"], old, new)
        for old, new in zip(request["objects"], converted, strict=True)
    ]


class ConversionError(Exception):
    """The answer of a webhook cannot be used; the text follows "conversion webhook for ..."."""


def _restore_metadata(version: str, old: Obj, new: Any) -> Obj:
    """Return the converted object with the metadata of the original one, except what may be changed in it."""
    known = old["metadata"]
    for expected, received, text in (
        (version, codec.dig(new, "apiVersion"), " at index 0: invalid groupVersion (expected {}, received {})"),
        (old["kind"], codec.dig(new, "kind"), " at index 0: invalid kind (expected {}, received {})"),
        *(
            (
                known.get(field, ""),
                codec.dig(new, "metadata", field) or "",
                f": must have the same {shown}: {{}} != {{}}",
            )
            for field, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))
        ),
    ):
        if expected != received:
            raise ConversionError(f"returned invalid object{text.format(expected, received)}")
    free = {field: new["metadata"][field] for field in _FREE if new["metadata"].get(field)}
    for field, texts in free.items():
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise ConversionError(f"returned invalid metadata: metadata.{field} must have texts only")
    if errors := [str(error) for error in objects.validate_metadata(free, known)]:
        raise ConversionError(f"returned invalid metadata: {', '.join(errors)}")
    return {**new, "metadata": {name: value for name, value in known.items() if name not in _FREE} | free}


def _fit(obj: Obj, schema: Schema, *, defaults: bool = False) -> Obj:
    """Drop in place what the schema does not allow, and add the defaults if wanted; return the object."""
    list(prune(obj, schema, "", root=True))
    list(prune_embedded(obj, schema, ""))
    schemas.fill_defaults(obj, schema, absent=defaults)
    return obj


def _key(kind: Kind, record: Record) -> _Key:
    """Encoded objects are unique: they have UIDs and versions in them."""
    return kind.version, record.data


# Custom resources that were stored before the last change of their definition are completed on reads.
#
# They are pruned and get defaults by the current schema of their stored version, without being written back: see
# "Defaulting" in "Extend the Kubernetes API with CustomResourceDefinitions". Newer objects are complete already.


class Completer(Converter):
    """Completes the objects of one definition before another converter converts them.

    Parameters:
        versions: The schemas of the versions.
        since: The revision of the definition; older objects are completed.
        converter: The next converter.
    """

    def __init__(self, versions: Mapping[str, Schema], since: int, converter: Converter) -> None:
        self.converts = converter.converts
        self._since = since
        self._converter = converter
        self._schemas = versions
        self._completed: dict[bytes, Record] = {}

    def require(self, kind: Kind, records: Iterable[Record], *, fresh: bool = False) -> None:
        self._converter.require(kind, [self._complete(record) for record in records], fresh=fresh)

    def read(self, kind: Kind, record: Record) -> bytes:
        return self._converter.read(kind, self._complete(record))

    def write(self, kind: Kind, obj: Obj) -> Obj:
        return self._converter.write(kind, obj)

    def remember(self, kind: Kind, obj: Obj, record: Record) -> None:
        self._converter.remember(kind, obj, self._complete(record))

    def _complete(self, record: Record) -> Record:
        schema = self._schemas.get(record.form)
        if record.revision > self._since or schema is None:
            return record
        known = self._completed.get(record.data)
        if known is None:
            if len(self._completed) >= _REMEMBERED:
                self._completed.clear()
            known = self._completed[record.data] = _complete(record, schema)
        return known


def _complete(record: Record, schema: Schema) -> Record:
    body = _fit(codec.decode(b"{" + record.data), schema, defaults=True)
    return msgspec.structs.replace(record, data=codec.encode(body)[1:])
