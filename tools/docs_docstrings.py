"""Docstrings of the code, as the site shows them: the roles of reStructuredText become Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:\w+:)?\w+:`~?(?:[^`<]*<)?\.?([^`>]+)>?`")
_LITERAL = re.compile(r"``([^`]+)``")


class Roles(griffe.Extension):
    """Replaces the roles in all docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _LITERAL.sub(r"`\1`", text)
