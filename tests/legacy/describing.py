"""Prints the public names of the framework that is installed, with their parameters; for either of both frameworks."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import warnings
from typing import Any

MODULES = "kopf", "kopf.on", "kopf.testing", "kopf.cli", "kopf.lifecycles"


def describe_parameters(value: Any) -> list[list[str]] | None:
    """The names, kinds and defaults of the parameters; none if it cannot be called, or nobody knows."""
    try:
        parameters = inspect.signature(value).parameters.values() if callable(value) else None
    except (TypeError, ValueError):
        return None
    return (
        None
        if parameters is None
        else [
            [item.name, item.kind.name, "" if item.default is item.empty else repr(item.default)] for item in parameters
        ]
    )


def describe() -> dict[str, list[list[str]] | None]:
    found = {}
    kopf = importlib.import_module("kopf")
    for module in MODULES:
        place = kopf.lifecycles if module == "kopf.lifecycles" else importlib.import_module(module)
        for name in getattr(place, "__all__", dir(place)):
            value = getattr(place, name)
            is_own = getattr(value, "__module__", "kopf").startswith("kopf")
            if name.startswith("_") or inspect.ismodule(value) or not is_own:
                continue
            found[f"{module}.{name}"] = describe_parameters(value)
            for member in dir(value) if inspect.isclass(value) else ():
                if not member.startswith("_"):
                    found[f"{module}.{name}.{member}"] = describe_parameters(getattr(value, member))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump(describe(), sys.stdout)
