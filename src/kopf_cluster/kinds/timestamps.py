"""
Timestamps as the API server reads and keeps them: RFC 3339, in UTC, to a second or to a microsecond.

The wording of the errors is that of Go, in which the server is written.
"""
from __future__ import annotations

import datetime
import functools
import re
from typing import Final

_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_DATE: Final = (("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"),
                ("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"))
_ZONE: Final = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_LAYOUTS: Final = {
    False: (*_DATE, ("", r"(?:[.,]\d+)?"), _ZONE),
    True: (*_DATE, (".000000", r"\.\d{6}"), _ZONE),
}


@functools.lru_cache(maxsize=4096)
def canonical(text: str, *, micro: bool) -> str:
    """Give the timestamp in UTC, or raise `ValueError` with the message of the API server."""
    _check_layout(text, micro)
    if not micro and _SECONDS.fullmatch(text):
        _parse(text)
        return text
    moment = _parse(text).astimezone(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _check_layout(text: str, micro: bool) -> None:
    layout = _LAYOUTS[micro]
    rest = text
    for element, pattern in layout:
        matched = re.match(pattern, rest, re.ASCII)
        if matched is None:
            raise ValueError(f'{_parsing(text, micro)}: cannot parse "{rest}" as "{element}"')
        rest = rest[matched.end():]
    if rest:
        raise ValueError(f'{_parsing(text, micro)}: extra text: "{rest}"')


def _parse(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError as error:
        what = str(error).partition(" ")[0]
        raise ValueError(f'parsing time "{text}": {what} out of range') from None


def _parsing(text: str, micro: bool) -> str:
    layout = "".join(element for element, _ in _LAYOUTS[micro])
    return f'parsing time "{text}" as "{layout}"'
