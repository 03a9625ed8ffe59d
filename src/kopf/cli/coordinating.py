"""The options of ``kopf run`` for several replicas, whose values can be left out."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import click

from kopf._settings.coordination import is_label

_OPTIONS = ("--leader-election", "--shards")
_MAX_NAME = 63
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class CommandWithModes(click.Command):
    """A command in which ``--shards handlers.py`` is not a name, but two things."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments: names follow the equals sign only, which is added where there is none."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [f"{arg}=" if arg in _OPTIONS else arg for arg in args[:end]] + args[end:])


def parse_mode(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Parse the name of a Lease: empty if it is left out. The environment can also have what flags have there."""
    is_word = value is not None and ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.ENVIRONMENT
    if value is None or (is_word and value.lower() in _NO):
        return None
    if not value or (is_word and value.lower() in _YES):
        return ""
    if not is_label(value):
        raise click.BadParameter(
            f"{value!r} is not a name: it must be of lowercase letters, digits, and dashes between them, of at most "
            f"{_MAX_NAME} characters.",
            ctx,
            param,
        )
    return value


def name_lease(value: str | None, paths: Sequence[str], modules: Sequence[str]) -> str | bool:
    """Name the Lease by the first file or module if its name is left out; false if there is to be none."""
    if value is None:
        return False
    sources = [*(os.path.splitext(os.path.basename(path))[0] for path in paths), *modules]
    return value or _make_name(sources[0] if sources else "") or True


def _make_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_MAX_NAME].strip("-")
