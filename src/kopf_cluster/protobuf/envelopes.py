"""
Whole objects, in the envelope that tells what they are; and the events of watches.

The envelope is the message `Unknown` of ``k8s.io/apimachinery/pkg/runtime`` after four magic bytes. An event is a
message `WatchEvent` with such an object inside; it has no envelope itself, but its length before it, in four bytes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kopf_cluster.protobuf.messages import find_message
from kopf_cluster.protobuf.wire import ProtobufError, read_fields, write_field

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
NO_MESSAGE: Final = "does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
_MAGIC: Final = b"k8s\0"
_PLAIN: Final = write_field(3, b"") + write_field(4, b"")  # neither packed, nor of another media type


class Envelope(msgspec.Struct, frozen=True):
    """An object that is not decoded yet. What it is can be left out by clients."""

    api_version: str
    kind: str
    raw: bytes


class NotEncodable(Exception):
    """There is no such message: objects of this kind can only be in JSON."""


def encode_object(obj: dict[str, Any]) -> bytes:
    """Encode an object in its envelope."""
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    message = find_message(api_version, kind)
    if message is None:
        raise NotEncodable(f"object {kind} of {api_version} {NO_MESSAGE}")
    meta = write_field(1, api_version.encode()) + write_field(2, kind.encode())
    return _MAGIC + write_field(1, meta) + write_field(2, message.encode_fields(obj)) + _PLAIN


def open_envelope(data: bytes) -> Envelope:
    """Find out what is sent; raise `ProtobufError` if it is broken."""
    if not data:
        raise ProtobufError("empty data")
    if not data.startswith(_MAGIC):
        raise ProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    if len(data) == len(_MAGIC):
        raise ProtobufError("empty body")
    parts = _split(data[len(_MAGIC) :])
    meta = _split(parts.get(1, b""))
    return Envelope(
        meta.get(1, b"").decode(errors="replace"), meta.get(2, b"").decode(errors="replace"), parts.get(2, b"")
    )


def decode_object(envelope: Envelope) -> dict[str, Any]:
    """Decode the object, the kind of which is known by now; raise `ProtobufError` if it is broken."""
    message = find_message(envelope.api_version, envelope.kind)
    if message is None:
        raise ProtobufError(f'no kind "{envelope.kind}" is registered for version "{envelope.api_version}"')
    return {"kind": envelope.kind, "apiVersion": envelope.api_version, **message.decode(envelope.raw)}


def encode_event(type_: str, obj: dict[str, Any]) -> bytes:
    """Encode an event of a watch as it is in a stream."""
    event = write_field(1, type_.encode()) + write_field(2, write_field(1, encode_object(obj)))
    return len(event).to_bytes(4) + event


def _split(data: bytes) -> dict[int, bytes]:
    return {number: value for number, _, value in read_fields(data) if isinstance(value, bytes)}
