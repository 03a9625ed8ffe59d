"""
What is wrong with a text that is not JSON, in the words of Go's ``encoding/json``: people search for these.

It is only asked when the decoder has refused the text, so it may be slow.
"""
from __future__ import annotations

import re
from typing import Final

_END: Final = "unexpected end of JSON input"
_MAX_DEPTH: Final = 10_000
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_DIGITS: Final = re.compile(rb"[0-9]+")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_ESCAPES: Final = frozenset(b'bfnrt\\/"')


class _Wrong(Exception):
    """Ends the scan; the text is the explanation."""


def explain(data: bytes) -> str | None:
    """Tell why the text is not JSON; none if its syntax is right, so that something else must be wrong with it."""
    try:
        _Scanner(data).scan()
    except _Wrong as error:
        return str(error)
    return None


class _Scanner:
    """Goes through the text once, with a stack of its own, as deep as the text is."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data
        self._pos = 0
        self._open: list[int] = []

    def scan(self) -> None:
        self._begin_value()
        while self._open:
            self._go_on()
        if self._peek() is not None:
            self._refuse("after top-level value")

    def _peek(self) -> int | None:
        """Give the next byte that is not a space, without taking it."""
        found = _SPACE.match(self._data, self._pos)
        self._pos = found.end() if found else self._pos
        return self._data[self._pos] if self._pos < len(self._data) else None

    def _take(self) -> int:
        """Take the very next byte."""
        if self._pos >= len(self._data):
            raise _Wrong(_END)
        self._pos += 1
        return self._data[self._pos - 1]

    def _refuse(self, context: str) -> None:
        """Refuse the next byte."""
        if self._pos >= len(self._data):
            raise _Wrong(_END)
        raise _Wrong(f"invalid character {_quote(self._data[self._pos])} {context}")

    def _begin_value(self) -> None:
        while self._has_opened():
            if len(self._open) > _MAX_DEPTH:
                raise _Wrong("exceeded max depth")

    def _has_opened(self) -> bool:
        """Take a scalar or an empty value; or else, open an object or an array, so that another value begins."""
        opened = len(self._open)
        match self._peek():
            case 0x7b:  # {
                self._pos += 1
                if self._peek() == ord("}"):
                    self._pos += 1
                else:
                    self._open.append(ord("{"))
                    self._take_key()
            case 0x5b:  # [
                self._pos += 1
                if self._peek() == ord("]"):
                    self._pos += 1
                else:
                    self._open.append(ord("["))
            case 0x22:  # "
                self._take_string()
            case int() as first if first in _LITERALS:
                self._take_literal(_LITERALS[first])
            case int() as first if first == ord("-") or _DIGITS.match(bytes([first])):
                self._take_number()
            case _:
                self._refuse("looking for beginning of value")
        return len(self._open) > opened

    def _go_on(self) -> None:
        """Go on after a value inside of something."""
        inside_object = self._open[-1] == ord("{")
        match self._peek():
            case 0x2c:  # ,
                self._pos += 1
                if inside_object:
                    self._take_key()
                self._begin_value()
            case 0x7d if inside_object:  # }
                self._pos += 1
                self._open.pop()
            case 0x5d if not inside_object:  # ]
                self._pos += 1
                self._open.pop()
            case _:
                self._refuse("after object key:value pair" if inside_object else "after array element")

    def _take_key(self) -> None:
        if self._peek() != ord('"'):
            self._refuse("looking for beginning of object key string")
        self._take_string()
        if self._peek() != ord(":"):
            self._refuse("after object key")
        self._pos += 1

    def _take_string(self) -> None:
        self._pos += 1
        while True:
            plain = _PLAIN.match(self._data, self._pos)
            self._pos = plain.end() if plain else self._pos
            match self._take():
                case 0x22:  # "
                    return
                case 0x5c:  # \
                    self._take_escape()
                case _:
                    self._pos -= 1
                    self._refuse("in string literal")

    def _take_escape(self) -> None:
        code = self._take()
        if code == ord("u"):
            for _ in range(4):
                self._expect(_HEX, "in \\u hexadecimal character escape")
        elif code not in _ESCAPES:
            self._pos -= 1
            self._refuse("in string escape code")

    def _take_literal(self, literal: bytes) -> None:
        for expected in literal:
            self._expect({expected}, f"in literal {literal.decode()} (expecting {_quote(expected)})")

    def _take_number(self) -> None:
        if self._data[self._pos] == ord("-"):
            self._pos += 1
        if self._data[self._pos:self._pos + 1] == b"0":
            self._pos += 1
        else:
            self._take_digits("in numeric literal")
        if self._data[self._pos:self._pos + 1] == b".":
            self._pos += 1
            self._take_digits("after decimal point in numeric literal")
        if self._data[self._pos:self._pos + 1] in (b"e", b"E"):
            self._pos += 2 if self._data[self._pos + 1:self._pos + 2] in (b"+", b"-") else 1
            self._take_digits("in exponent of numeric literal")

    def _take_digits(self, context: str) -> None:
        found = _DIGITS.match(self._data, self._pos)
        if found is None:
            self._refuse(context)
        else:
            self._pos = found.end()

    def _expect(self, allowed: set[int] | frozenset[int], context: str) -> None:
        if self._take() not in allowed:
            self._pos -= 1
            self._refuse(context)


def _quote(byte: int) -> str:
    """Show a byte as Go does: as the character of that number, in single quotes."""
    if byte in b"'\\":
        return f"'\\{chr(byte)}'"
    shown = repr(chr(byte))[1:-1] if byte != ord('"') else '"'
    return f"'{shown}'"
