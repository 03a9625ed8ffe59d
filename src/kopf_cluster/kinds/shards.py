"""
Shard selectors of lists and watches: text → ranges of the hashes of uids or of namespaces.

See "Sharded list and watch" of the Kubernetes "API Concepts". The language is a part of CEL: calls of ``shardRange()``
that are joined by ``||``. It is parsed here, as nothing else of CEL is allowed, not even parentheses around calls.
"""

from __future__ import annotations

import functools
import re
from typing import Final

import msgspec

from kopf_cluster import statuses
from kopf_cluster.store.watch_cache import Record

GATE: Final = "ShardedListAndWatch"
"""The feature gate, without which the selectors are ignored."""

_UID: Final = "object.metadata.uid"
_NAMESPACE: Final = "object.metadata.namespace"
_DIGITS: Final = 16
_END: Final = f"0x1{'0' * _DIGITS}"
_CALL: Final = re.compile(r"\s*(?P<function>[A-Za-z_]\w*)\s*\((?P<arguments>[^()]*)\)\s*")
_TEXT: Final = re.compile(r"""'([^'\\]*)'|"([^"\\]*)\"""")


class Shards(msgspec.Struct, frozen=True):
    """A predicate that selects objects whose hash of this field is in any of the ranges."""

    field: str
    ranges: tuple[tuple[int, int], ...]
    """Each includes its start, but not its end."""

    def __call__(self, record: Record) -> bool:
        value = hash_text(record.uid if self.field == _UID else record.key[0])
        return any(start <= value < end for start, end in self.ranges)

    def __str__(self) -> str:
        return " || ".join(f"shardRange({self.field}, '0x{start:016x}', '0x{end:016x}')" for start, end in self.ranges)


def hash_text(text: str) -> int:
    """Return the hash FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


@functools.lru_cache(maxsize=256)
def parse_shards(text: str) -> Shards | None:
    """Parse a shard selector, or raise the API's "bad request"; return none for an empty one: it selects everything."""
    if not text:
        return None
    if not text.strip():
        raise _refuse("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    (field, _), *others = ranges = [_parse_range(call) for call in text.split("||")]
    for other, _ in others:
        if other != field:
            raise _refuse(f'all shard ranges must use the same field, got "{field}" and "{other}"')
    return Shards(field, tuple(bounds for _, bounds in ranges))


def _parse_range(text: str) -> tuple[str, tuple[int, int]]:
    call = _CALL.match(text)
    if call is None:
        kind = 3 if text.strip().isidentifier() else 5 if _TEXT.fullmatch(text.strip()) else 7  # as CEL counts them
        raise _refuse(f"unexpected expression kind {kind}; expected shardRange() call or || operator")
    rest = text[call.end() :]
    if rest or call["function"] != "shardRange":
        function = f"_{(rest.split() or [''])[0]}_" if rest else call["function"]
        raise _refuse(f'unsupported function "{function}"; only shardRange() and || are allowed')
    arguments = [argument.strip() for argument in call["arguments"].split(",")]
    if len(arguments) != 3:
        raise _refuse(f"shardRange() requires exactly 3 arguments, got {len([*filter(None, arguments)])}")
    field = re.sub(r"\s*\.\s*", ".", arguments[0])
    if field not in (_UID, _NAMESPACE):
        raise _refuse(f'unsupported field path "{field}"; supported: {_UID}, {_NAMESPACE}')
    start, end = _parse_bound("hexStart", arguments[1]), _parse_bound("hexEnd", arguments[2])
    if start >= end:
        raise _refuse(f"shard range start 0x{start:016x} must be less than end 0x{end:016x}")
    return field, (start, end)


def _parse_bound(name: str, literal: str) -> int:
    match = _TEXT.fullmatch(literal)
    if match is None:
        is_number = re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", literal)
        what = "string literal, got int64" if is_number else "string literal (e.g. '0xff'), got expression kind 3"
        raise _refuse(f"{name} must be a {what}")
    text = match[1] or match[2] or ""
    digits, wrong = text.removeprefix("0x"), re.search(r"[^0-9a-f]", text[2:])
    faults = {
        f"{name} must have '0x' prefix, got \"{text}\"": not text.startswith("0x"),
        f"{name}: hex value is required after '0x'": not digits,
        f'{name}: hex value too long ({len(digits)} chars, max 17): "{digits}"': len(digits) > _DIGITS + 1,
        f'{name}: invalid hex character "{wrong and wrong[0]}" in "{text}"': wrong,
        f"{name}: 17-digit hex value must be '{_END}' (2^64), got \"{text}\"": len(digits) > _DIGITS and text != _END,
        f'{name} must be a 0x-prefixed 16-digit hex value, got "{text}" (did you mean "0x{digits.zfill(_DIGITS)}"?)': (
            len(digits) < _DIGITS
        ),
    }
    for why, is_so in faults.items():
        if is_so:
            raise _refuse(why)
    return int(digits, 16)


def _refuse(why: str) -> statuses.APIStatus:
    return statuses.bad_request(f"invalid shard selector: {why}")
