"""
In which encodings answers are sent. All are made in JSON, and become something else at the end, if that is wanted.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from kopf_cluster import codec, statuses, yamls
from kopf_cluster.http.accepting import parse_accept
from kopf_cluster.http.requests import Answer
from kopf_cluster.protobuf import envelopes

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = envelopes.MEDIA_TYPE

#: What objects can be sent in, by preference if the client has none.
SERVED: Final = (JSON, YAML, PROTOBUF)


class Frames(Protocol):
    """How the events of a watch are put into a stream."""

    content_type: str

    def frame(self, type_: str, obj: bytes) -> bytes:
        """Make an event of its type and of an object in JSON."""
        ...


class Lines:
    """Events in JSON, each of which is a line."""

    content_type = JSON

    def frame(self, type_: str, obj: bytes) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), obj)


class Delimited:
    """Events in protobuf, each with its length before it."""

    content_type = f"{PROTOBUF};stream=watch"

    def frame(self, type_: str, obj: bytes) -> bytes:
        return envelopes.encode_event(type_, codec.decode(obj))


#: In what streams can be sent; there are none in YAML.
STREAMED: Final[Mapping[str, Frames]] = {JSON: Lines(), PROTOBUF: Delimited()}


def choose_plain(accept: str) -> str:
    """Choose the encoding of what has only one form, such as refusals; they are told even to those who accept none."""
    return next((media for clause in parse_accept(accept) if clause.is_plain
                 for media in SERVED if clause.covers(media)), JSON)


def transcode(answer: Answer, media: str) -> Answer:
    """Give the answer in another encoding, if it is an object in JSON now."""
    if media == JSON or answer.content_type != JSON:
        return answer
    obj = codec.decode(answer.body)
    return msgspec.structs.replace(answer, body=_encode(obj, media), content_type=media)


def _encode(obj: dict[str, Any], media: str) -> bytes:
    if media == YAML:
        return yamls.dump(obj)
    try:
        return envelopes.encode_object(obj)
    except envelopes.NotEncodable as error:
        raise statuses.APIStatus(406, "NotAcceptable", str(error)) from None
