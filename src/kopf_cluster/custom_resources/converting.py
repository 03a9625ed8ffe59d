"""
Conversion of custom resources between versions by webhooks: ``ConversionReview`` of ``apiextensions.k8s.io/v1``.

Objects are stored in one version, and converted on requests in another one. The results are remembered for a while,
as the states of objects never change. Open conversions are questions of the session, see `sessions`.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

import msgspec

from kopf_cluster import codec, sessions, statuses
from kopf_cluster.admission.webhook_calls import Caller, CallError
from kopf_cluster.kinds import schemas
from kopf_cluster.kinds.kind import Converter, Kind, Obj
from kopf_cluster.kinds.schemas import Schema
from kopf_cluster.store.storage import Record

TIMEOUT: Final = 30.0
"""The timeout of a conversion, in seconds; as in kube-apiserver."""

# The maximal number of remembered states; a bigger list is remembered as a whole until the next conversion.
_REMEMBERED: Final = 10_000

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


class WebhookConverter(Converter):
    """Converts the objects of one definition by its webhook."""

    converts = True

    def __init__(self, definition: Obj, caller: Caller) -> None:
        spec = definition["spec"]
        webhook = spec["conversion"]["webhook"]
        versions = webhook.get("conversionReviewVersions") or ()
        self._config: Obj = webhook.get("clientConfig") or {}
        self._review_version = next((name for name in versions if name in ("v1", "v1beta1")), "v1")
        self._group, self._kind = spec["group"], spec["names"]["kind"]
        self._caller = caller
        self._read: dict[tuple[str, bytes], bytes] = {}
        self._written: dict[bytes, Obj] = {}

    def require(self, kind: Kind, records: Iterable[Record]) -> None:
        """Ask for all conversions at once that are needed to show the records in the version of the kind."""
        wanted = {_key(kind, record): record for record in records if record.form not in ("", kind.version)}
        missing = {key: record for key, record in wanted.items() if key not in self._read}
        if missing:
            question = ("convert", kind.version, tuple(missing))
            raise sessions.Unresolved(question, lambda: self._convert_records(kind, [*missing.values()], wanted))

    def read(self, kind: Kind, record: Record) -> bytes:
        """Return the encoded object, with no version and kind, as it is in the version of the kind."""
        if record.form in ("", kind.version):
            return record.data
        self.require(kind, [record])
        return self._read[_key(kind, record)]

    def write(self, kind: Kind, obj: Obj) -> Obj:
        """Return the object in the stored version."""
        if kind.version == kind.storage_version:
            return obj
        key = codec.encode(obj)
        if key not in self._written:
            raise sessions.Unresolved(("store", key), lambda: self._convert_new(kind, obj, key))
        return self._written[key]

    def remember(self, kind: Kind, record: Record, data: bytes) -> None:
        """Remember the new state in the version of the write."""
        self._read[_key(kind, record)] = data

    async def _convert_records(self, kind: Kind, records: Sequence[Record], wanted: Container[object]) -> None:
        """Convert the records, and forget old states, but none of the wanted ones."""
        objs = [
            codec.decode(
                b'{"apiVersion":"%s/%s","kind":"%s",' % (kind.group.encode(), record.form.encode(), kind.kind.encode())
                + record.data
            )
            for record in records
        ]
        converted = await self._convert(kind.version, objs)
        spare = [key for key in self._read if key not in wanted]
        for key in spare[: max(len(self._read) + len(records) - _REMEMBERED, 0)]:
            del self._read[key]
        for record, obj in zip(records, converted, strict=True):
            body = {"metadata": obj["metadata"]} | {
                field: value for field, value in obj.items() if field not in ("apiVersion", "kind", "metadata")
            }
            self._read[_key(kind, record)] = codec.encode(body)[1:]

    async def _convert_new(self, kind: Kind, obj: Obj, key: bytes) -> None:
        (converted,) = await self._convert(kind.storage_version, [obj])
        for old in list(self._written)[: max(len(self._written) + 1 - _REMEMBERED // 100, 0)]:
            del self._written[old]
        self._written[key] = converted

    async def _convert(self, version: str, objs: list[Obj]) -> list[Obj]:
        """Call the webhook, or raise the refusal with which the API answers if that fails."""
        review: Obj = {
            "apiVersion": f"apiextensions.k8s.io/{self._review_version}",
            "kind": "ConversionReview",
            "request": {"uid": str(uuid.uuid4()), "desiredAPIVersion": f"{self._group}/{version}", "objects": objs},
        }
        try:
            body = await self._caller.call(self._config, review, TIMEOUT)
            return self._read_response(review, body)
        except (CallError, ConversionError) as error:
            raise statuses.unknown_error(
                f"conversion webhook for {objs[0]['apiVersion']}, Kind={self._kind} failed: {error}"
            ) from None

    @staticmethod
    def _read_response(review: Obj, body: bytes) -> list[Obj]:
        try:
            answer = msgspec.json.decode(body, type=_Review)
        except msgspec.MsgspecError as error:
            raise ConversionError(f"invalid response: {error}") from None
        response, request = answer.response, review["request"]
        if response is None or (answer.apiVersion, answer.kind) != (review["apiVersion"], review["kind"]):
            raise ConversionError(
                f"expected webhook response of {review['apiVersion']}, Kind=ConversionReview, "
                f"got {answer.apiVersion}, Kind={answer.kind}"
            )
        if response.uid != request["uid"]:
            raise ConversionError(f'expected response.uid="{request["uid"]}", got "{response.uid}"')
        if response.result.status != "Success":
            raise ConversionError(response.result.message or f'response.result.status was "{response.result.status}"')
        converted = response.convertedObjects or []
        if len(converted) != len(request["objects"]):
            raise ConversionError(f"webhook returned {len(converted)} objects, expected {len(request['objects'])}")
        return [
            _check(request["desiredAPIVersion"], old, new)
            for old, new in zip(request["objects"], converted, strict=True)
        ]


class ConversionError(Exception):
    """The answer of a webhook cannot be used."""


def _check(version: str, old: Obj, new: Any) -> Obj:
    """Return the converted object with the metadata of the original one, except what may be changed in it."""
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise ConversionError("invalid converted object: it has no metadata")
    if (new.get("apiVersion"), new.get("kind")) != (version, old["kind"]):
        raise ConversionError(
            f"invalid converted object: expected {version}, Kind={old['kind']}, "
            f"got {new.get('apiVersion')}, Kind={new.get('kind')}"
        )
    for field in ("name", "namespace", "uid"):
        if new["metadata"].get(field) != old["metadata"].get(field):
            raise ConversionError(f"invalid converted object: metadata.{field} was changed")
    free = {field: new["metadata"][field] for field in _FREE if new["metadata"].get(field)}
    kept = {field: value for field, value in old["metadata"].items() if field not in _FREE}
    return {**new, "metadata": {**kept, **free}}


def _key(kind: Kind, record: Record) -> tuple[str, bytes]:
    """Encoded objects are unique: they have UIDs and versions in them."""
    return kind.version, record.data


# Custom resources that were stored before the last change of their definition are completed on reads.
#
# They are pruned and get defaults by the current schema of their stored version, without being written back: see
# "Defaulting" in "Extend the Kubernetes API with CustomResourceDefinitions". Newer objects are complete already.


class Completer(Converter):
    """Completes the objects of one definition before another converter converts them.

    Parameters:
        definition: The custom resource definition.
        since: The revision of the definition; older objects are completed.
        converter: The next converter.
    """

    def __init__(self, definition: Obj, since: int, converter: Converter) -> None:
        self.converts = converter.converts
        self._since = since
        self._converter = converter
        self._schemas: dict[str, Schema] = {
            version["name"]: schemas.parse(version["schema"]["openAPIV3Schema"])
            for version in definition["spec"]["versions"]
        }
        self._completed: dict[bytes, Record] = {}

    def require(self, kind: Kind, records: Iterable[Record]) -> None:
        if self.converts:
            self._converter.require(kind, [self._complete(record) for record in records])

    def read(self, kind: Kind, record: Record) -> bytes:
        return self._converter.read(kind, self._complete(record))

    def write(self, kind: Kind, obj: Obj) -> Obj:
        return self._converter.write(kind, obj)

    def remember(self, kind: Kind, record: Record, data: bytes) -> None:
        self._converter.remember(kind, record, data)

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
    body = codec.decode(b"{" + record.data)
    metadata = body.pop("metadata")
    for _ in schemas.prune(body, schema, "", root=True):
        pass
    schemas.fill_defaults(body, schema)
    return msgspec.structs.replace(record, data=codec.encode({"metadata": metadata, **body})[1:])
