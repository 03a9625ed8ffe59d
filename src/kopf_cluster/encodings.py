"""
The encodings of answers. All answers are made in JSON, and transcoded at the end if the client wants that.
"""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kopf_cluster import codec, statuses, yamls
from kopf_cluster.protobuf import messages
from kopf_cluster.requests import Answer

# The header ``Accept``, with the meaning of kube-apiserver.
#
# See "Alternate representations of resources" of the Kubernetes "API Concepts": parameters of a media type ask for
# another form of the objects, and a server that has no such form goes on to what else is accepted.


class Clause(msgspec.Struct, frozen=True):
    """One of the accepted media types, which can be a pattern, with its parameters."""

    media: str
    parameters: Mapping[str, str]

    def covers(self, media: str) -> bool:
        """Whether it accepts the media type, which has no parameters."""
        return self.media in (media, f"{media.partition('/')[0]}/*", "*/*")

    @property
    def is_plain(self) -> bool:
        """Whether it accepts whole objects."""
        return "as" not in self.parameters


@functools.lru_cache(maxsize=256)
def parse_accept(header: str) -> tuple[Clause, ...]:
    """Return the accepted media types, the most wanted first; JSON without the header."""
    if not header:
        return (Clause("application/json", {}),)
    weighted = [_parse_clause(text) for text in header.split(",")]
    weighted.sort(key=lambda pair: (-pair[0], pair[1].media.count("*")))
    return tuple(clause for _, clause in weighted)


def _parse_clause(text: str) -> tuple[float, Clause]:
    media, *parts = (part.strip() for part in text.split(";"))
    parameters = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in parts)}
    return _parse_weight(parameters.pop("q", "1")), Clause(media, parameters)


def _parse_weight(text: str) -> float:
    """Return the weight; zero if it is invalid."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = messages.MEDIA_TYPE

SERVED: Final = (JSON, YAML, PROTOBUF)
"""The media types of objects, in the order of the server's preference."""


class Frames(NamedTuple):
    """The framing of events in a watch stream."""

    content_type: str
    frame: Callable[[str, bytes], bytes]
    """Makes an event from its type and an object in JSON."""


STREAMED: Final[Mapping[str, Frames]] = {
    JSON: Frames(JSON, lambda type_, obj: b'{"type":"%s","object":%s}\n' % (type_.encode(), obj)),
    PROTOBUF: Frames(f"{PROTOBUF};stream=watch", lambda type_, obj: messages.encode_event(type_, codec.decode(obj))),
}
"""The media types of streams; there are none in YAML."""


def choose_plain(accept: str) -> str:
    """Choose the encoding of an answer with a single form, such as a refusal; JSON if the client accepts none."""
    return next(
        (media for clause in parse_accept(accept) if clause.is_plain for media in SERVED if clause.covers(media)), JSON
    )


def transcode(answer: Answer, media: str) -> Answer:
    """Return the answer in another encoding, if it is an object in JSON."""
    if media == JSON or answer.content_type != JSON:
        return answer
    obj = codec.decode(answer.body)
    return msgspec.structs.replace(answer, body=_encode(obj, media), content_type=media)


def _encode(obj: dict[str, Any], media: str) -> bytes:
    if media == YAML:
        return yamls.dump(obj)
    try:
        return messages.encode_object(obj)
    except messages.NotEncodable as error:
        raise statuses.APIStatus(406, "NotAcceptable", str(error)) from None


# Answers are indented for people: for browsers and command-line tools, or on demand.

_PEOPLE: Final = ("curl", "Wget", "Mozilla/5.0")  # prefixes of user agents
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # as of Go's `strconv.ParseBool`


def wants_indents(raw_path: str, agent: str) -> bool:
    """Whether to indent the answer: by the parameter ``pretty``, or else by the user agent; never for schemas."""
    path, _, query = raw_path.partition("?")
    if path.startswith("/openapi/"):
        return False
    if "pretty" in query and (values := urllib.parse.parse_qs(query).get("pretty")):
        return values[0] in _TRUE
    return path == "/version" or agent.startswith(_PEOPLE)
