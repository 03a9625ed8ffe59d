"""
Telling names: what fields are called whose values are secrets, whatever object they are in.

They are hidden at once: nobody knows if a Secret with the same value comes later, or ever. Names of objects and of keys
are called so, too (``token: my-token``), and are needed in a replay: so only what is clearly no name, is hidden by the
less telling ones.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

_PASSWORDS = ("password", "passwd", "passphrase")
_KEYS = ("token", "apikey", "secretkey", "accesskey", "privatekey", "clientsecret")
_drop_separators = re.compile(r"[-_. ]").sub
_is_dense = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{12,}").fullmatch
_HINTS = (b"passw", b"passphrase", b'token"', b"key", b"client", b'"auth"')


def may_tell(document: bytes) -> bool:
    """Tell quickly if there can be such names."""
    lowered = document.lower()
    return any(hint in lowered for hint in _HINTS)


def find_secret(fields: dict[str, Any]) -> list[str]:
    """Find the fields of the object whose values are secrets."""
    found = [key for key, value in fields.items() if isinstance(value, str) and value and _is_secret(key, value)]
    name, value = fields.get("name"), fields.get("value")  # as the environment variables of containers
    if isinstance(name, str) and isinstance(value, str) and value and _is_secret(name, value):
        found.append("value")
    return found


def _is_secret(key: str, value: str) -> bool:
    name = _drop_separators("", key).lower()
    if name.endswith(_PASSWORDS):
        return True
    if name == "auth":
        return _is_user_with_password(value)
    return name.endswith(_KEYS) and _is_dense(value) is not None


def _is_user_with_password(value: str) -> bool:
    """Tell if it is as in the configuration of Docker."""
    try:
        return b":" in base64.b64decode(value.encode(), validate=True)
    except (binascii.Error, ValueError):
        return False
