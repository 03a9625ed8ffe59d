"""
Loading the operator's code for one test: its decorators work as if it was loaded for the first time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kopf._handlers.registry import OperatorRegistry, get_default_registry, set_default_registry
from kopf.cli.loading import load


def load_anew(paths: Sequence[str], modules: Sequence[str], registry: OperatorRegistry | None) -> OperatorRegistry:
    """Load the files and modules to this registry, or to a new one; if there are none, the default one is taken."""
    if not paths and not modules:
        return registry if registry is not None else get_default_registry()
    registry = registry if registry is not None else OperatorRegistry()
    previous = get_default_registry()
    set_default_registry(registry)
    for name in [name for name in sys.modules if any(f"{name}.".startswith(f"{own}.") for own in modules)]:
        del sys.modules[name]  # of an earlier test: its decorators must work again
    try:
        load(paths, modules)
    finally:
        set_default_registry(previous)
    return registry
