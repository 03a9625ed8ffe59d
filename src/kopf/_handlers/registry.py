"""
Registries: all handlers of one operator, and their assignment to the resources of the cluster.

The decorators fill the default registry during the import of the operator's modules.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kopf._handlers.handlers import (
    ActivityHandler,
    ChangingHandler,
    ConversionHandler,
    Handler,
    IndexingHandler,
    Need,
    ResourceHandler,
    SpawningHandler,
    TimerHandler,
    WatchingHandler,
    WebhookHandler,
)
from kopf._values.fields import FieldPath
from kopf._values.ids import HandlerId
from kopf._values.reasons import Activity
from kopf._values.records import FrozenRecord
from kopf._values.resources import Resource
from kopf._values.selectors import ResourceModel, Selector
from kopf._values.user_functions import describe_function

H = TypeVar("H", bound=ResourceHandler)
Owners = Mapping[Resource, frozenset[HandlerId]]
Selections = Mapping[Selector, Collection[Resource]]
"""The resources of each selector; none for ambiguous ones."""

NO_OWNERS: Owners = {}

_ESSENTIAL_METADATA = frozenset({"labels", "annotations"})
_FORMER_SECTIONS: Mapping[str, type[Handler]] = {
    "_activities": ActivityHandler,
    "_changing": ChangingHandler,
    "_indexing": IndexingHandler,
    "_spawning": SpawningHandler,
    "_watching": WatchingHandler,
    "_webhooks": WebhookHandler,
}


class OperatorRegistry:
    """All handlers of an operator, in the order of their declaration."""

    def __init__(self) -> None:
        super().__init__()
        self.activities: list[ActivityHandler] = []
        """The handlers of the operator itself: startup, cleanup, login, probes."""
        self.resources: list[ResourceHandler] = []
        """The handlers of objects: of changes and events, indices, daemons, timers, reconcilers."""
        self.webhooks: list[WebhookHandler] = []
        """The handlers of admission."""
        self.conversions: list[ConversionHandler] = []
        """The conversions between versions."""
        self.needs: list[Need] = []
        """The needs of the operator besides its handlers."""
        self.models: list[ResourceModel] = []
        """The models of custom resources, with or without handlers."""
        self.listeners: list[Callable[[], None]] = []
        """The functions to call after each new handler, in any thread."""

    def append(self, handler: Handler) -> None:
        """Add a handler."""
        match handler:
            case ActivityHandler():
                self.activities.append(handler)
            case WebhookHandler():
                self.webhooks.append(handler)
            case ConversionHandler():
                self.conversions.append(handler)
            case ResourceHandler():
                self.resources.append(handler)
        for listener in [*self.listeners]:
            listener()

    def forget(self, module: str) -> None:
        """Remove the handlers and models of this module, before it is loaded again."""
        self.activities = [handler for handler in self.activities if not _is_of_module(handler, module)]
        self.resources = [handler for handler in self.resources if not _is_of_module(handler, module)]
        self.webhooks = [handler for handler in self.webhooks if not _is_of_module(handler, module)]
        self.conversions = [handler for handler in self.conversions if not _is_of_module(handler, module)]
        self.models = [model for model in self.models if getattr(model, "__module__", None) != module]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Get private attributes of the original framework."""
            return get_section(self, name)

    def __bool__(self) -> bool:
        return bool(self.activities or self.resources or self.webhooks or self.conversions)

    def get_activities(self, activity: Activity) -> list[ActivityHandler]:
        """Get the handlers of one activity."""
        return [handler for handler in self.activities if handler.activity == activity]

    def get_indexing(self) -> list[IndexingHandler]:
        """Get the handlers that fill the indices."""
        return [handler for handler in self.resources if isinstance(handler, IndexingHandler)]

    def get_selectors(self) -> Collection[Selector]:
        """Get the selectors of all handlers, each once, in the order of declaration."""
        handlers = (*self.resources, *self.webhooks)
        named = (handler.selector for handler in handlers if handler.selector is not None)
        others = (item for handler in self.resources for item in (*_list_owned(handler), *_list_used(handler)))
        return list(dict.fromkeys((*named, *others)))

    def get_ambiguities(self, resources: Collection[Resource]) -> Mapping[Selector, Collection[Resource]]:
        """Get the selectors that name one resource but match several. Kopf does not serve them."""
        selections = {selector: selector.select(resources) for selector in self.get_selectors() if selector.is_specific}
        return {selector: selection for selector, selection in selections.items() if len(selection) > 1}

    def get_unmatched(self, resources: Collection[Resource]) -> Collection[Selector]:
        """Get the selectors that match no resource."""
        return [selector for selector in self.get_selectors() if not selector.select(resources)]

    def plan(self, resources: Collection[Resource]) -> Mapping[Resource, HandlersOfResource]:
        """Assign the handlers to their resources. Resources without handlers are left out."""
        selections = self._select(resources)
        spread = _spread(self.resources, selections)
        owners = _spread_dependents(spread, selections, _list_owned)
        users = _spread_dependents(spread, selections, _list_used)
        return {
            resource: HandlersOfResource.build(
                spread.get(resource, ()), owners.get(resource, NO_OWNERS), users.get(resource, NO_OWNERS)
            )
            for resource in dict.fromkeys((*spread, *owners, *sorted(users, key=str)))
        }

    def plan_webhooks(self, resources: Collection[Resource]) -> Mapping[Resource, Sequence[WebhookHandler]]:
        """Assign the admission handlers to their resources: these need no watching."""
        return _spread(self.webhooks, self._select(resources))

    def _select(self, resources: Collection[Resource]) -> Selections:
        ambiguous = self.get_ambiguities(resources)
        return {item: () if item in ambiguous else item.select(resources) for item in self.get_selectors()}


def _spread(handlers: Iterable[H], selections: Selections) -> Mapping[Resource, list[H]]:
    spread: dict[Resource, list[H]] = {}
    for handler in handlers:
        if handler.selector is not None:
            for resource in selections[handler.selector]:
                spread.setdefault(resource, []).append(handler)
    return spread


def _spread_dependents(
    spread: Mapping[Resource, Sequence[ResourceHandler]],
    selections: Selections,
    list_selectors: Callable[[ResourceHandler], Sequence[Selector]],
) -> Mapping[Resource, Owners]:
    """Find the handlers to call for changes of each owned or used resource."""
    dependents: dict[Resource, dict[Resource, frozenset[HandlerId]]] = {}
    for dependent, handlers in spread.items():
        for handler in handlers:
            for selector in list_selectors(handler):
                for resource in selections[selector]:
                    ids = dependents.setdefault(resource, {})
                    ids[dependent] = ids.get(dependent, frozenset()) | {handler.id}
    return dependents


def _list_owned(handler: ResourceHandler) -> Sequence[Selector]:
    return handler.owns if isinstance(handler, ChangingHandler | TimerHandler) else ()


def _list_used(handler: ResourceHandler) -> Sequence[Selector]:
    return [item.selector for item in handler.uses] if isinstance(handler, ChangingHandler) else ()


def find_mention(handlers: Iterable[ResourceHandler], selector: Selector) -> str:
    """Name the handler that owns or uses the resource, for messages about the resource."""
    for handler in handlers:
        for option, selectors in (("owns", _list_owned(handler)), ("uses", _list_used(handler))):
            if selector in selectors and selector != handler.selector:
                return f"{option}= of {describe_function(handler.fn)}"
    return ""


def _is_of_module(handler: Handler, module: str) -> bool:
    return getattr(handler.fn, "__module__", None) == module  # partials have none


class HandlersOfResource(FrozenRecord, frozen=True):
    """The handlers of one resource, sorted by their kinds in advance."""

    indexing: tuple[IndexingHandler, ...]
    watching: tuple[WatchingHandler, ...]
    spawning: tuple[SpawningHandler, ...]
    changing: tuple[ChangingHandler, ...]
    extra_fields: tuple[FieldPath, ...]
    """The sorted fields that the handlers use although they are not essential, e.g. in the status."""
    owners: Owners
    """The handlers of owner resources that changes of the owned objects of this resource call."""
    users: Owners
    """The handlers of resources whose objects refer to objects of this resource: the changes of these call them."""

    @property
    def is_used(self) -> bool:
        """Whether changes of objects of this resource call handlers of other objects, which refer to them."""
        return bool(self.users)

    @property
    def is_seen_whole(self) -> bool:
        """Whether each replica must know all objects: for indices, or for handlers of other objects."""
        return bool(self.indexing or self.owners or self.is_used)

    @classmethod
    def build(
        cls, handlers: Iterable[ResourceHandler], owners: Owners = NO_OWNERS, users: Owners = NO_OWNERS
    ) -> HandlersOfResource:
        """Sort the handlers by their kinds."""
        handlers = list(handlers)
        spawning = tuple(handler for handler in handlers if isinstance(handler, SpawningHandler))
        changing = tuple(handler for handler in handlers if isinstance(handler, ChangingHandler))
        return cls(
            indexing=tuple(handler for handler in handlers if isinstance(handler, IndexingHandler)),
            watching=tuple(handler for handler in handlers if isinstance(handler, WatchingHandler)),
            spawning=spawning,
            changing=changing,
            extra_fields=tuple(sorted({handler.field for handler in changing if _is_unessential(handler.field)})),
            owners=owners,
            users=users,
        )

    def find_clashes(self) -> Iterator[tuple[ResourceHandler, ResourceHandler]]:
        """
        Find different functions with the same id that can be called for the same change, or run for the same object.

        Kopf stores the progress by ids. So, when one of them succeeds, the other one seems to have succeeded, too.
        """
        for handlers in (self.changing, self.spawning):
            known: dict[str, list[ResourceHandler]] = {}
            for handler in handlers:
                others = known.setdefault(handler.id, [])
                other = next((item for item in others if _is_clash(item, handler)), None)
                if other is not None:
                    yield other, handler
                others.append(handler)


def _is_clash(one: ResourceHandler, two: ResourceHandler) -> bool:
    if one.identity == two.identity:
        return False
    if not isinstance(one, ChangingHandler) or not isinstance(two, ChangingHandler):
        return True
    return one.reason == two.reason or one.reason is None or two.reason is None  # None is also for resuming


def _is_unessential(field: FieldPath) -> bool:
    match field:
        case ():
            return False
        case ("metadata", child, *_):
            return child not in _ESSENTIAL_METADATA
    return field[0] in ("status", "apiVersion", "kind")


def deduplicate(handlers: Iterable[H]) -> Iterator[H]:
    """Leave one handler of those with the same function and id, i.e. of several decorators on one function."""
    seen: set[tuple[int, int, str]] = set()
    for handler in handlers:
        if handler.identity not in seen:
            seen.add(handler.identity)
            yield handler


_default_registry: OperatorRegistry | None = None


def get_default_registry() -> OperatorRegistry:
    """Get the registry of decorators and operators without a ``registry`` of their own."""
    global _default_registry
    if _default_registry is None:
        _default_registry = OperatorRegistry()
    return _default_registry


def set_default_registry(registry: OperatorRegistry) -> None:
    """Replace the registry of decorators and operators without a ``registry`` of their own."""
    global _default_registry
    _default_registry = registry


class Section:
    """All current handlers of one kind: a private attribute of the original registry, until 3.0."""

    def __init__(self, registry: OperatorRegistry, kind: type[Handler]) -> None:
        self._registry = registry
        self._kind = kind

    def get_all_handlers(self) -> tuple[Handler, ...]:
        """Get all handlers of this kind, in the order of their declaration."""
        registry = self._registry
        handlers: tuple[Handler, ...] = (*registry.activities, *registry.resources, *registry.webhooks)
        return tuple(handler for handler in handlers if isinstance(handler, self._kind))

    _handlers = property(get_all_handlers)
    """It is a tuple, because the registry would not see changes of a list."""

    def append(self, handler: Handler) -> None:
        """Add a handler to the registry."""
        self._registry.append(handler)


def get_section(registry: OperatorRegistry, name: str) -> Section:
    """Get the former attribute of the registry. Raises :class:`AttributeError` if there was none."""
    if name not in _FORMER_SECTIONS:
        raise AttributeError(f"{type(registry).__name__!r} object has no attribute {name!r}")
    text = f"OperatorRegistry.{name} is private. It has no public counterpart, and can disappear in any version."
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    return Section(registry, _FORMER_SECTIONS[name])
