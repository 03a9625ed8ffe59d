"""
The data of config maps and secrets: their keys, which are names of files in pods, and what each type of secrets needs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster import codec
from kopf_cluster.statuses import FieldError, invalid_value, required, too_long

Obj: TypeAlias = dict[str, Any]

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_MOST: Final = 1024 * 1024  # bytes of all values together
_ACCOUNT: Final = "kubernetes.io/service-account.name"
# What must be there, and what must be JSON, by the types without their prefix.
_NEEDED: Final = {
    "tls": ("tls.crt", "tls.key"),
    "dockercfg": (".dockercfg",),
    "dockerconfigjson": (".dockerconfigjson",),
}
_JSON: Final = ("dockercfg", "dockerconfigjson")


def validate_config_map(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    for field, keys, other, others in (("data", data, "binaryData", binary), ("binaryData", binary, "data", data)):
        for key in keys:
            yield from _validate_key(key, field)
            if key in others:
                yield invalid_value(f"{field}[{key}]", key, f"duplicate of key present in {other}")
    if sum(len(text.encode()) for text in data.values()) + sum(map(_size, binary.values())) > _MOST:
        yield too_long("[]", _MOST)


def validate_secret(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    data = new.get("data") or {}
    for key in data:
        yield from _validate_key(key, "data")
    if sum(map(_size, data.values())) > _MOST:
        yield too_long("data", _MOST)
    kind = (new.get("type") or "").removeprefix("kubernetes.io/")
    for key in _NEEDED.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif kind in _JSON and (why := _find_fault(base64.b64decode(data[key]))):
            yield invalid_value(f"data[{key}]", "<secret contents redacted>", why)
    if kind == "basic-auth" and "username" not in data and "password" not in data:
        yield required("data[username]")
        yield required("data[password]")
    if kind == "ssh-auth" and not data.get("ssh-privatekey"):
        yield required("data[ssh-privatekey]")
    if kind == "service-account-token" and not (new["metadata"].get("annotations") or {}).get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")


def _size(encoded: str) -> int:
    """Give how many bytes are encoded in base64."""
    letters = len(encoded) - encoded.count("\n") - encoded.count("\r")
    return letters * 3 // 4 - encoded.count("=")


def _validate_key(key: str, field: str) -> Iterator[FieldError]:
    if len(key) > 253:
        yield invalid_value(f"{field}[{key}]", key, "must be no more than 253 characters")
    elif key in (".", ".."):
        yield invalid_value(f"{field}[{key}]", key, f"must not be '{key}'")
    elif _KEY.fullmatch(key) is None:
        yield invalid_value(f"{field}[{key}]", key, _KEY_RULE)


def _find_fault(text: bytes) -> str:
    """Tell why it is no JSON object; nothing if it is one."""
    kinds = {str: "string", list: "array", bool: "bool", int: "number", float: "number"}
    try:
        found = kinds.get(type(codec.decode(text)))
    except (codec.DecodeError, RecursionError) as error:
        return str(error)
    return f"json: cannot unmarshal {found} into Go value of type map[string]interface {{}}" if found else ""
