"""
Former modules: they are empty, and look up their attributes among the current names on demand.

The table of the former names and their current places is here, too.
"""

from __future__ import annotations

import dis
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import operator
import sys
import warnings
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any, NamedTuple


class Target(NamedTuple):
    """The current place of a name."""

    module: str
    name: str


# The names of each former module by the modules of today; `old=new` is for renamed ones.
# The public names are not here: they are found in any of these modules, as they were imported from everywhere.
_TABLE: Mapping[str, Mapping[str, str]] = {
    "kopf._cogs.clients.errors": {"kopf": "APIUnprocessableEntityError=APIUnprocessableError"},
    "kopf._cogs.configs.configuration": {
        "kopf._settings.settings": """
            AdmissionSettings BackgroundSettings ExecutionSettings NetworkingSettings PeeringSettings
            PersistenceSettings PostingSettings ProcessSettings QueueingSettings ScanningSettings
            WatchingSettings
        """
    },
    "kopf._cogs.configs.conventions": {
        "kopf._storage.annotation_names": """
            CollisionEvadingConvention=AnnotationNaming StorageKeyFormingConvention=AnnotationNaming
            StorageKeyMarkingConvention=AnnotationNaming
        """,
        "kopf._storage.essence": "StorageStanzaCleaner=EssenceCleaner",
    },
    "kopf._cogs.configs.diffbase": {},
    "kopf._cogs.configs.progress": {},
    "kopf._cogs.helpers.loaders": {"kopf.cli.loading": "preload=load"},
    "kopf._cogs.helpers.typedefs": {},
    "kopf._cogs.helpers.versions": {"kopf": "version=__version__ version_tuple=__version_tuple__"},
    "kopf._cogs.structs.bodies": {"kopf._values.bodies": "MetaEssence RawMeta"},
    "kopf._cogs.structs.credentials": {"kopf._client.auth.vault": "Vault"},
    "kopf._cogs.structs.dicts": {
        "kopf._legacy.dicts": "cherrypick ensure remove resolve",
        "kopf._values.bodies": "MappingView",
        "kopf._values.fields": "parse_field",
    },
    "kopf._cogs.structs.diffs": {"kopf._legacy.dicts": "reduce", "kopf._values.diffs": "EMPTY diff"},
    "kopf._cogs.structs.ephemera": {"collections.abc": "Indices=Mapping", "typing": "AnyMemo=Any"},
    "kopf._cogs.structs.ids": {},
    "kopf._cogs.structs.patches": {
        "kopf._values.patches": "JSONPatchItem MetaPatch SpecPatch=MutableStanza StatusPatch=MutableStanza"
    },
    "kopf._cogs.structs.references": {
        "builtins": "Namespace=str",
        "kopf._values.bodies": "NamespaceName",
        "kopf._values.resources": "CRDS EVENTS NAMESPACES",
        "kopf._values.selectors": "Marker Selector",
    },
    "kopf._cogs.structs.reviews": {"kopf._values.reviews": "Response ResponsePayload ResponseStatus"},
    "kopf._core.actions.execution": {
        "kopf._handlers.causes": "Cause",
        "kopf._handlers.handler_errors": "HandlerChildrenRetry",
        "kopf._handlers.handlers": "Handler",
        "kopf._handlers.lifecycles": "LifeCycleFn",
        "kopf._handlers.attempts": "Outcome",
        "kopf._legacy.context_variables": "cause_var handler_var",
    },
    "kopf._core.actions.invocation": {
        "kopf._handlers.handlers": "is_async_fn=is_async",
        "kopf._legacy.context_variables": "context",
    },
    "kopf._core.actions.lifecycles": {
        "kopf": """
            all_at_once=lifecycles.all_at_once asap=lifecycles.asap one_by_one=lifecycles.one_by_one
            randomized=lifecycles.randomized shuffled=lifecycles.shuffled
        """
    },
    "kopf._core.actions.loggers": {
        "kopf._legacy.formatters": """
            ObjectJsonFormatter ObjectPrefixingJsonFormatter ObjectPrefixingTextFormatter ObjectTextFormatter
        """,
        "kopf._logging.configuration": "make_formatter",
        "kopf._logging.json_format": "DEFAULT_JSON_REFKEY=DEFAULT_REFKEY",
        "kopf._logging.loggers": "logger=objects_logger",
    },
    "kopf._core.engines.activities": {},
    "kopf._core.engines.admission": {},
    "kopf._core.engines.indexing": {"collections.abc": "OperatorIndices=Mapping"},
    "kopf._core.engines.peering": {"kopf._coordination.peers": "Peer"},
    "kopf._core.engines.posting": {
        "kopf._legacy.context_variables": "K8sEvent enqueue event_queue_loop_var event_queue_var settings_var",
    },
    "kopf._core.intents.callbacks": {
        "kopf._handlers.filter_criteria": "MetaFilterFn=WhenFilter WhenFilterFn=WhenFilter",
        "kopf._handlers.handlers": """
            ActivityFn=HandlerFn ChangingFn=HandlerFn DaemonFn=HandlerFn IndexingFn=HandlerFn
            SpawningFn=HandlerFn TimerFn=HandlerFn WatchingFn=HandlerFn WebhookFn=HandlerFn
        """,
    },
    "kopf._core.intents.causes": {
        "kopf._handlers.causes": """
            ActivityCause BaseCause=Cause ChangingCause DaemonCause=ResourceCause IndexingCause=ResourceCause
            ResourceCause SpawningCause=ResourceCause WatchingCause WebhookCause
        """,
        "kopf._legacy.context_variables": "cause_var",
        "kopf._values.reasons": "Activity WebhookType",
    },
    "kopf._core.intents.filters": {"kopf._handlers.filter_criteria": "MetaFilter MetaFilterToken ValueFilter"},
    "kopf._core.intents.handlers": {
        "kopf._handlers.handlers": """
            ActivityHandler ChangingHandler DaemonHandler IndexingHandler ResourceHandler SpawningHandler
            TimerHandler WatchingHandler WebhookHandler
        """
    },
    "kopf._core.intents.piggybacking": {},
    "kopf._core.intents.registries": {
        "kopf": "SmartOperatorRegistry=OperatorRegistry",
        "kopf._values.ids": "get_callable_id",
    },
    "kopf._core.intents.stoppers": {"kopf._legacy.stoppers": "DaemonStopper"},
    "kopf._core.reactor.running": {},
    "kopf._core.reactor.subhandling": {},
    "kopf._kits.runner": {"kopf.testing": "KopfRunner"},
    "kopf._kits.webhooks": {},
}

# Replacements for names and modules that are gone, and that operators are known to use.
_REPLACEMENTS: Mapping[str, str] = {
    "kopf._cogs.aiokits": "what asyncio offers, e.g. asyncio.Event",
    "kopf._cogs.clients.api": "a client library, e.g. 'kubernetes'; or the kwarg 'patch' of handlers",
    "kopf._cogs.clients.patching": "the kwarg 'patch' of handlers; or a client library, e.g. 'kubernetes'",
    "kopf._core.actions.throttlers": "settings.queueing.error_delays",
    "kopf._core.engines.daemons": "@kopf.daemon and @kopf.timer; in tests, kopf.testing.Simulation",
    "kopf._core.engines.indexing.OperatorIndexers": "@kopf.index and kopf.Index; in tests, kopf.testing.Simulation",
    "kopf._core.reactor.inventory": "the kwarg 'memo' of handlers, kopf.Memo",
}

MODULES = frozenset(
    ".".join(parts[:size]) for parts in (name.split(".") for name in _TABLE) for size in range(2, len(parts) + 1)
)
"""All former modules that can be imported, and their packages."""

_PUBLIC_PLACES = ("kopf", "kopf.testing")


def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find a former module if there is no real one with this name; see the hook in ``kopf/__init__.py``."""
    if name in MODULES:
        is_package = any(other.startswith(f"{name}.") for other in MODULES)
        return importlib.util.spec_from_loader(name, _Loader(), is_package=is_package)
    if name.startswith(("kopf._cogs.", "kopf._core.")):
        raise ModuleNotFoundError(_explain(f"module {name!r}", name), name=name)
    return None


class _Loader(importlib.abc.Loader):
    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = functools.partial(get_former, module.__name__)


def get_former(module: str, name: str, *, stacklevel: int = 1) -> Any:
    """
    Get the current value of a name in a former module. Warn the caller, ``stacklevel`` frames above this one.

    Raises :class:`AttributeError` if the name is gone. If it is imported by name, raises :class:`ImportError` instead:
    otherwise, Python would not show our explanation.
    """
    if f"{module}.{name}" in MODULES:
        return importlib.import_module(f"{module}.{name}")
    target = None if name.startswith("__") else find_target(module, name)
    if target is None:
        error = ImportError if _is_import_by_name(sys._getframe(stacklevel)) else AttributeError
        raise error(_explain(f"{name!r} in {module!r}", f"{module}.{name}"))
    warnings.warn(f"{module}.{name} is private. {_advise(target)}", DeprecationWarning, stacklevel=stacklevel + 1)
    return operator.attrgetter(target.name)(importlib.import_module(target.module))


def _is_import_by_name(frame: FrameType) -> bool:
    return frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def _explain(what: str, name: str) -> str:
    return f"There is no {what} anymore: it was an internal part of Kopf 1. Use {find_replacement(name)}."


def _advise(target: Target) -> str:
    if target.module in _PUBLIC_PLACES or not target.module.startswith("kopf"):
        return f"Use {target.module}.{target.name} instead."
    return "It has no public counterpart, and can disappear in any version."


def find_target(module: str, name: str) -> Target | None:
    """Find the current place of a name of a former module, if it still exists."""
    for place, names in _TABLE.get(module, {}).items():
        for item in names.split():
            old, _, new = item.partition("=")
            if old == name:
                return Target(place, new or old)
    is_public = module in _TABLE and name in importlib.import_module("kopf").__all__
    return Target("kopf", name) if is_public else None


def find_replacement(name: str) -> str:
    """Say what replaces a former module, or a name in it, that is gone."""
    return _REPLACEMENTS.get(name, "what the module 'kopf' offers")
