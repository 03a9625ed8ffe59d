"""
Redaction: it hides the secrets in documents and texts.

It hides the data of Secrets anywhere, also in their annotations; the same values in all other documents; tokens that
the API issues; and values that are named or look like passwords, tokens, or private keys. A hidden value is replaced by
its digest; in ``data``, by the digest in base64, so that decoding gives the digest. Names of objects and keys of data
remain, as they are in the paths anyway.

Fields with telling names are hidden at once, as a Secret with the same value can come later, or never. Fields with less
telling names can contain the names of objects or keys (``token: my-token``), which a replay needs. So these fields are
hidden only if their value is clearly not a name.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable
from typing import Any

from kopf._replay.known_secrets import PREFIX, KnownSecrets
from kopf._values import codec

_SECRETS = re.compile(r"/secrets(/|$)")
_ISSUING = re.compile(r"/token$|/tokenreviews$")
_DATA = ("data", "stringData")
_HIDDEN = "redacted"
_ENCODED_PREFIX = base64.b64encode(PREFIX.encode()).decode()
_SHORTEST_LEARNED = 8
"""Shorter values are hidden in fields with telling names only: elsewhere, they can be any words."""
TEXT = "$text"
"""The key of a document that was not valid JSON, in the object that replaces it."""

# The patterns for all documents: first a text that is quickly found, then the exact pattern.
_PATTERNS = (
    ("eyJ", re.compile(r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*")),
    ("PRIVATE KEY-----", re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL,
    )),
    ("LS0tLS1CRUdJTi", re.compile(  # the same in base64
        r"LS0tLS1CRUdJTi[A-Za-z0-9+/]*(?:UFJJVkFURSBLRVkt|BSSVZBVEUgS0VZL|QUklWQVRFIEtFWS)[A-Za-z0-9+/=]*",
    )),
    ("earer ", re.compile(r"(?<=earer )(?=[A-Za-z._~+/-]*[0-9])[A-Za-z0-9._~+/-]{8,}=*")),
    ("assword", _PASSWORDS := re.compile(
        r"""(?:(?<=assword[=:])|(?<=assword":)|(?<=assword: )|(?<=assword":")|(?<=assword": "))"""
        r"""(?!redacted-)[^\s"'\\,;&]+""",
        re.IGNORECASE,
    )),
    ("ASSWORD", _PASSWORDS),
    ("://", re.compile(r"(?<=://)[^/\s\"\\@:]*:[^/\s\"\\@]+(?=@)")),
)  # fmt: skip
_HINTS = tuple(hint.encode() for hint, _ in _PATTERNS)
_SAFE_DEPTH = 100
_IDENTITY = {"name", "namespace", "uid", "resourceVersion", "generateName"}
_VERSIONS = {"apiVersion", "kind"}
_IDENTIFIED = {"metadata", "involvedObject", "ownerReferences"}

# The names of fields with secrets, in any objects.
_PASSWORD_NAMES = ("password", "passwd", "passphrase")
_KEY_NAMES = ("token", "apikey", "secretkey", "accesskey", "privatekey", "clientsecret")
_drop_separators = re.compile(r"[-_. ]").sub
_is_dense = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{12,}").fullmatch
_NAME_HINTS = (b"passw", b"passphrase", b'token"', b"token\\", b"token=", b"key", b"client", b'"auth"', b'"auth\\')
"""Parts of these names in lower case, as they are quoted in documents, and in documents inside of these."""


class Redactor:
    """Hides the secrets in documents and texts. It learns the secrets from the documents as they come."""

    def __init__(self) -> None:
        self._known = KnownSecrets(os.urandom(16))

    def redact_text(self, text: str) -> str:
        """Hide known secrets, and values that look like secrets, e.g. in the text of an error."""
        data = text.encode(errors="replace")
        return self._hide_patterns(self._known.replace(text, self._known.find_glued(data)))

    def redact(self, document: bytes, path: str, *, is_sent: bool) -> bytes:
        """
        Hide the secrets in the document, which comes from or goes to (``is_sent``) this path.

        The result is valid JSON on one line, and not nested too deeply for a line of the file.
        """
        is_secret = _SECRETS.search(path) is not None
        is_issuing = _ISSUING.search(path) is not None
        try:
            _check(document)
            if is_issuing:
                document = codec.encode(self._hide_tokens(codec.decode(document)))
            elif is_secret or b'"Secret' in document:
                document = codec.encode(self._hide_secrets(codec.decode(document), is_secret=is_secret))
            if _may_have_telling_names(document):
                document = codec.encode(_hide_telling(codec.decode(document), self._known))
            if self._known:
                found = self._known.find_glued(document) if is_sent else self._known.find(document)
                if found:
                    document = _map_texts(document, lambda text: self._known.replace(text, found))
            if any(hint in document for hint in _HINTS):
                document = _map_texts(document, self._hide_patterns)
        except ValueError:
            return self._wrap(document, is_secret=is_secret or is_issuing or b'"Secret' in document)
        return document.replace(b"\n", b" ").replace(b"\r", b" ")

    def _wrap(self, document: bytes, *, is_secret: bool) -> bytes:
        """Put a document that is not valid JSON into a text inside of JSON."""
        text = document.decode(errors="replace")
        return codec.encode({TEXT: _HIDDEN if is_secret else self.redact_text(text)})

    def _hide_patterns(self, text: str) -> str:
        for hint, pattern in _PATTERNS:
            if hint in text:
                # Escaped values in inner documents get the same digests, as a replay compares them.
                text = pattern.sub(lambda match: self._known.digest(match[0].replace("\\n", "\n").encode()), text)
        return text

    # Secrets.

    def _hide_secrets(self, value: Any, *, is_secret: bool) -> Any:
        """Hide the data of Secrets at any level; ``is_secret`` is for values that are Secrets by their paths."""
        if isinstance(value, list):
            if is_secret:
                return [self._hide_operation(item) for item in value]
            return [self._hide_secrets(item, is_secret=False) for item in value]
        if not isinstance(value, dict):
            return value
        is_secret = is_secret or value.get("kind") in ("Secret", "SecretList")
        hidden = {}
        for key, item in value.items():
            if is_secret and key in _DATA:
                hidden[key] = self._hide_data(item)
            elif is_secret and key == "metadata" and isinstance(item, dict):
                hidden[key] = (
                    {**item, "annotations": self._hide_annotations(item["annotations"])}
                    if isinstance(item.get("annotations"), dict)
                    else item
                )
            elif is_secret and key == "items" and isinstance(item, list):
                hidden[key] = [self._hide_secrets(each, is_secret=True) for each in item]
            else:
                hidden[key] = self._hide_secrets(item, is_secret=is_secret and key == "object")
        return hidden

    def _hide_data(self, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: self._hide_value(item) for key, item in data.items()}
        return self._hide_value(data)

    def _hide_value(self, value: Any) -> Any:
        if value is None or value == "":
            return value
        if not isinstance(value, str):
            return self._known.digest(codec.encode(value))
        try:
            content = base64.b64decode(value.encode(), validate=True)
        except (binascii.Error, ValueError):
            content = b""
        if content and base64.b64encode(content).decode() == value:
            self._known.learn(content)
            self._known.learn(value.encode())  # in ``stringData``, anything can look like base64
            return base64.b64encode(self._known.digest(content).encode()).decode()
        self._known.learn(value.encode())
        return self._known.digest(value.encode())

    def _hide_annotations(self, annotations: dict[str, Any]) -> dict[str, Any]:
        """Hide the copies of the Secret in its annotations: the last applied, and the last handled configuration."""
        hidden = dict(annotations)
        for name, text in annotations.items():
            if isinstance(text, str) and text.lstrip().startswith("{"):
                try:
                    hidden[name] = codec.dumps(self._hide_secrets(codec.decode(text), is_secret=True))
                except ValueError:
                    hidden[name] = self._known.digest(text.encode())
        return hidden

    def _hide_operation(self, operation: Any) -> Any:
        """Hide the values in an operation of a JSON-patch of a Secret."""
        if not isinstance(operation, dict) or "value" not in operation:
            return operation
        value, target = operation["value"], str(operation.get("path"))
        if target.startswith(("/data", "/stringData")):
            return {**operation, "value": self._hide_data(value)}
        if target.startswith("/metadata/annotations") and isinstance(value, str):
            return {**operation, "value": self._hide_annotations({"": value})[""]}
        if target == "/metadata/annotations" and isinstance(value, dict):
            return {**operation, "value": self._hide_annotations(value)}
        return {**operation, "value": self._hide_secrets(value, is_secret=target in ("", "/"))}

    def _hide_tokens(self, value: Any) -> Any:
        """Hide the tokens in requests & responses that issue or review them."""
        if isinstance(value, dict):
            return {
                key: self._hide_value(item) if key == "token" and isinstance(item, str) else self._hide_tokens(item)
                for key, item in value.items()
            }
        return [self._hide_tokens(item) for item in value] if isinstance(value, list) else value


def _hide_telling(value: Any, known: KnownSecrets) -> Any:
    """Hide the values of fields with telling names, e.g. passwords."""
    if isinstance(value, list):
        return _hide_arguments([_hide_telling(item, known) for item in value], known)
    if isinstance(value, str):
        return _hide_telling_inside(value, known)
    if not isinstance(value, dict):
        return value
    secret = _find_secret_fields(value)
    return {
        key: _hide_named(item, known) if key in secret else _hide_telling(item, known) for key, item in value.items()
    }


def _hide_arguments(items: list[Any], known: KnownSecrets) -> list[Any]:
    """Hide the secret values of options in a command line: in the same item, or in the next one."""
    hidden = [*items]
    for index, item in enumerate(items):
        if not isinstance(item, str) or not item.startswith("--"):
            continue
        option, equals, value = item.partition("=")
        following = items[index + 1] if index + 1 < len(items) else None
        if equals and _is_secret_argument(option, value):
            hidden[index] = f"{option}={_hide_named(value, known)}"
        elif not equals and isinstance(following, str) and _is_secret_argument(option, following):
            hidden[index + 1] = _hide_named(following, known)
    return hidden


def _is_secret_argument(option: str, value: str) -> bool:
    """Tell if it is clearly a secret: some options have no value, and the next item can be anything."""
    if not value or value.startswith("-") or option.startswith("--no-"):
        return False
    return _is_secret(option, value) or option.lower().endswith("token")  # as opposed to fields, it is never a name


def _hide_telling_inside(text: str, known: KnownSecrets) -> str:
    """Hide secrets in a document inside of a text, e.g. the configuration of Docker, or the last handled state."""
    if text.lstrip()[:1] not in ("{", "[") or not _may_have_telling_names(text.encode()):
        return text
    try:
        value = codec.decode(text)
    except ValueError:
        return text
    hidden = _hide_telling(value, known)
    return text if hidden == value else codec.dumps(hidden) + text[len(text.rstrip()) :]


def _hide_named(value: str, known: KnownSecrets) -> str:
    if value.startswith((PREFIX, _ENCODED_PREFIX)):
        return value
    if len(value) >= _SHORTEST_LEARNED:
        known.learn(value.encode())
    return known.digest(value.encode())


def _map_texts(document: bytes, change: Callable[[str], str]) -> bytes:
    return codec.encode(_map(codec.decode(document), change, is_identified=False))


def _map(value: Any, change: Callable[[str], str], *, is_identified: bool) -> Any:
    """Change all texts and keys, except for names of objects and of fields, as a secret can be any word."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map(item, change, is_identified=is_identified) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        (key if key.isalpha() else change(key)): item
        if isinstance(item, str) and (key in _VERSIONS or (is_identified and key in _IDENTITY))
        else _map(item, change, is_identified=key in _IDENTIFIED)
        for key, item in value.items()
    }


def _check(document: bytes) -> None:
    """Raise :class:`ValueError` if it is not JSON, or is nested too deeply for a line, with some levels to spare."""
    if document.count(b"[") + document.count(b"{") < _SAFE_DEPTH:
        codec.skim(document)
    else:
        codec.skim(b"[" * _SAFE_DEPTH + document + b"]" * _SAFE_DEPTH)


def _may_have_telling_names(document: bytes) -> bool:
    """Tell quickly if there can be fields with telling names."""
    lowered = document.lower()
    return any(hint in lowered for hint in _NAME_HINTS)


def _find_secret_fields(fields: dict[str, Any]) -> list[str]:
    """Find the fields of the object whose values are secrets."""
    found = [key for key, value in fields.items() if isinstance(value, str) and value and _is_secret(key, value)]
    name, value = fields.get("name"), fields.get("value")  # as the environment variables of containers
    if isinstance(name, str) and isinstance(value, str) and value and _is_secret(name, value):
        found.append("value")
    return found


def _is_secret(key: str, value: str) -> bool:
    name = _drop_separators("", key).lower()
    if name.endswith(_PASSWORD_NAMES):
        return True
    if name == "auth":
        return _is_user_with_password(value)
    return name.endswith(_KEY_NAMES) and _is_dense(value) is not None


def _is_user_with_password(value: str) -> bool:
    """Tell if the value is ``user:password`` in base64, as in the configuration of Docker."""
    try:
        return b":" in base64.b64decode(value.encode(), validate=True)
    except (binascii.Error, ValueError):
        return False
