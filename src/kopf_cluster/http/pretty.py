"""
Whether an answer is indented: for people, who come with browsers and tools of the command line, or who say so.
"""
from __future__ import annotations

import urllib.parse
from typing import Final

import msgspec

_PEOPLE: Final = ("curl", "Wget", "Mozilla/5.0")  # the beginnings of what their programs call themselves
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # as of Go's `strconv.ParseBool`


def is_wanted(raw_path: str, agent: str) -> bool:
    """Decide by the request: the parameter ``pretty`` goes before what can be guessed. Schemas are never indented."""
    path, _, query = raw_path.partition("?")
    if path.startswith("/openapi/"):
        return False
    if "pretty" in query and (values := urllib.parse.parse_qs(query).get("pretty")):
        return values[0] in _TRUE
    return path == "/version" or agent.startswith(_PEOPLE)


def indent(body: bytes) -> bytes:
    """Give the same JSON with every field and item in a line of its own."""
    return msgspec.json.format(body, indent=2)
