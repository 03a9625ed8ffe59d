"""
Known secrets: the values of Secrets, to be found in all other documents.

A few values can be searched for in every document one by one; thousands cannot. So each value has an *anchor*, its
longest run of letters and digits. A document is split into such runs at once, and is searched only if one of them is
an anchor. Documents that the operator sends are rare, and are searched for every value, as the code of handlers can
join a value with other letters. The joined text is a known secret from then on, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from kopf._values import codec

PREFIX = "redacted-"
_SHORTEST = 4
"""Shorter values are hidden in the Secrets only: elsewhere, they are too common, and mean something else."""
_FEW = 200
"""Up to so many known values (in all their forms), each is searched for in all documents."""
_SHORTEST_GLUED = 8
"""Shorter values are found there only as separate words: as parts of other words, they are too common."""
_SHORTEST_PART = 16
_find_runs = re.compile(rb"[A-Za-z0-9]{4,}").findall
_find_text_runs = re.compile(r"[A-Za-z0-9]{4,}").findall
_is_glue = re.compile(r"[A-Za-z0-9]").match
_drop_escapes = re.compile(rb"\\+(?:u[0-9a-fA-F]{4}|[nrtbf])").sub
_find_words = re.compile(r"[A-Za-z0-9+/=_.~:-]{16,}").findall
_is_dense = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])").match


class KnownSecrets:
    """
    Values that are replaced with their digests: equal values by equal ones, so that changes are still seen.

    :param salt: random bytes that are never saved, so that the values cannot be guessed by their digests.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._replacements: dict[str, str] = {}
        self._anchored: dict[bytes, set[str]] = {}
        self._unanchored: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._replacements)

    def digest(self, value: bytes) -> str:
        """Make the digest that replaces the value."""
        return PREFIX + hashlib.blake2b(value, key=self._salt, digest_size=8).hexdigest()

    def learn(self, value: bytes) -> None:
        """Remember a value of a Secret, and its other forms: base64, stripped, its parts."""
        if PREFIX.encode() in value[: len(PREFIX)]:
            return
        replacement = self.digest(value)
        self._add(base64.b64encode(value).decode(), base64.b64encode(replacement.encode()).decode())
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return
        self._add(text, replacement)
        self._add(text.strip(), replacement)
        for part in _split(text):
            self._add(part, self.digest(part.encode()))

    def _add(self, text: str, replacement: str) -> None:
        if len(text) < _SHORTEST or text in self._replacements:
            return
        for form in {text, codec.dumps(text)[1:-1]}:  # the latter is in texts with JSON inside: annotations
            self._replacements[form] = replacement
            if runs := _find_text_runs(form):
                self._anchored.setdefault(max(runs, key=len).encode(), set()).add(form)
            else:
                self._unanchored.add(form)

    def find(self, document: bytes) -> list[str]:
        """Find the values that can be in the document, the longest first."""
        found = {form for form in self._unanchored if form.encode() in document}
        runs = set(_find_runs(document))
        if b"\\" in document:  # the letters of escapes are not in the text: "\nPASSWORD"
            runs.update(_find_runs(_drop_escapes(b" ", document)))
        if not runs.isdisjoint(self._anchored):
            found.update(*(self._anchored[run] for run in runs if run in self._anchored))
        if len(self._replacements) <= _FEW:
            text = document.decode(errors="replace")
            found.update(form for form in self._replacements if len(form) >= _SHORTEST_GLUED and form in text)
        return sorted(found, key=len, reverse=True)

    def find_glued(self, document: bytes) -> list[str]:
        """Find all values in the document, even those joined with other letters; and learn the joined texts, too."""
        text = document.decode(errors="replace")
        found = [form for form in self._replacements if form in text]
        for form in found:
            for word in set(_find_around(form, text)) - {form}:
                self._add(word, word.replace(form, self._replacements[form]))
        return sorted({*found, *self.find(document)}, key=len, reverse=True)

    def replace(self, text: str, found: list[str]) -> str:
        """Replace the found values in the text."""
        for form in found:
            if form in text:
                text = text.replace(form, self._replacements[form])
        return text


def _find_around(form: str, text: str) -> Iterator[str]:
    """Find the value with all the letters and digits around it."""
    begin = text.find(form)
    while begin >= 0:
        end = begin + len(form)
        while end < len(text) and _is_glue(text, end):
            end += 1
        while begin > 0 and _is_glue(text, begin - 1):
            begin -= 1
        yield text[begin:end]
        begin = text.find(form, end)


def _split(text: str) -> Iterator[str]:
    """Split a value into the parts that handlers are likely to use: lines, dense words, and the texts of its JSON."""
    if "\n" in text:
        lines = [line.strip() for line in text.splitlines()]
        yield from (line for line in lines if len(line) >= _SHORTEST_PART and not line.startswith("---"))
    yield from (word for word in _find_words(text) if word != text and _is_dense(word))
    if text.startswith(("{", "[")):
        try:
            yield from (leaf for leaf in _iter_texts(codec.decode(text)) if len(leaf) >= 2 * _SHORTEST)
        except ValueError:  # it only looks like JSON
            return


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iter_texts(item)
