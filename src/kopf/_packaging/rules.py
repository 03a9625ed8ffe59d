"""
Rules: the permissions that an operator needs, inferred from its handlers, its settings, and its declared needs.

It is a pure function of the given resources, whether they are discovered or only known from definitions. The requests
in an audit of the local cluster can be added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._coordination.peering import PEERING_GROUPS
from kopf._handlers.handlers import ChangingHandler, Handler, ReconcilingHandler, SpawningHandler
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry
from kopf._settings.settings import AdmissionSettings, OperatorSettings
from kopf._storage.diffbase import AnnotationsDiffBaseStorage
from kopf._storage.progress import AnnotationsProgressStorage, SmartProgressStorage
from kopf._values.permissions import make_rule
from kopf._values.records import FrozenRecord
from kopf._values.resources import CRDS, EVENTS, LEASES, NAMESPACES, Resource
from kopf._values.selectors import EVERYTHING, Selector
from kopf._values.user_functions import can_return_value, get_function

Scope = str | None
"""A namespace, or ``None`` for the whole cluster."""

_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
_SUBHANDLING = frozenset({"execute", "register", "subhandler"})
_DEFAULT_NAMESPACE = "default"
"""The namespace of the events about objects without namespaces."""
_OTHERS = ("kubectl", "helm", "Mozilla", "kopf-local-cluster")
"""The user agents of people and of the local cluster's own methods: their requests do not come from the operator."""
_OPEN_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")
"""The API groups that are open to all users."""


class Rule(FrozenRecord, frozen=True, order=True):
    """A permission on one resource in one namespace or in the whole cluster."""

    namespace: str
    """The namespace; empty for the whole cluster."""
    group: str
    resource: str
    """The plural name, maybe with a subresource: ``pods``, ``pods/log``; or ``*``."""
    names: tuple[str, ...]
    """The names of the permitted objects; empty for all objects."""
    verbs: tuple[str, ...]


class Situation(FrozenRecord, frozen=True, kw_only=True):
    """The place of the operator, and the namespaces that it serves."""

    scopes: frozenset[Scope] = frozenset({None})
    """The namespaces that it serves; ``None`` is for the whole cluster."""
    has_namespaces: bool = False
    """Whether it is restricted to some namespaces, and so watches them."""
    has_patterns: bool = False
    """Whether some of these are patterns, not exact names."""
    own_namespace: Scope = None
    """The namespace of its pods, if it is known."""


class RuleSet:
    """A collection of rules, verb by verb."""

    def __init__(self) -> None:
        self._verbs: dict[tuple[str, str, str, tuple[str, ...]], set[str]] = {}

    def add(
        self,
        scopes: Iterable[Scope],
        resource: Resource,
        verbs: Iterable[str],
        *,
        subresource: str | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Permit the verbs in these namespaces; or in the whole cluster, if the resource has no namespaces."""
        name = f"{resource.plural}/{subresource}" if subresource else resource.plural
        for scope in (None,) if resource.namespaced is False else scopes:
            verbs = {*verbs}
            creating = verbs & {"create", "deletecollection"} if names else set()  # names are not known then
            for part, restriction in ((verbs - creating, tuple(sorted(names))), (creating, ())):
                if part:
                    self._verbs.setdefault((scope or "", resource.group, name, restriction), set()).update(part)

    def list(self) -> list[Rule]:
        """List all rules in order, without parts of other rules."""
        order = [*_VERBS, *sorted({verb for verbs in self._verbs.values() for verb in verbs} - {*_VERBS})]
        rules = [Rule(*key, tuple(sorted(verbs, key=order.index))) for key, verbs in sorted(self._verbs.items())]
        return [rule for rule in rules if not any(_is_part(rule, other) for other in rules if other is not rule)]


def _is_part(rule: Rule, other: Rule) -> bool:
    granted = make_rule(other.group, [other.resource], other.verbs, other.names)
    return other.namespace in ("", rule.namespace) and not list(find_missing(rule, [granted]))


def infer_rules(
    registry: OperatorRegistry, settings: OperatorSettings, resources: Collection[Resource], situation: Situation
) -> list[Rule]:
    """Infer the rules for the handlers of these resources. Without a cluster, see :func:`find_resources`."""
    rules = RuleSet()
    scopes = situation.scopes
    plan = registry.plan(resources)
    pruning = {handler.id for handler in registry.resources if isinstance(handler, ReconcilingHandler)}
    for resource, handlers in plan.items():
        _add_handled(rules, scopes, resource, handlers, settings)
        if any(pruning & ids for ids in handlers.owners.values()):
            rules.add(scopes, resource, ["delete"])
    for need in registry.needs:
        for resource in need.selector.select(resources):
            places = scopes if need.namespace is None else {need.namespace}
            rules.add(places, resource, need.verbs, subresource=need.subresource, names=need.names)
    if settings.posting.enabled and registry.resources:  # what admission handlers log, is not posted
        is_global = None not in scopes and any(resource.namespaced is False for resource in plan)
        rules.add({*scopes, _DEFAULT_NAMESPACE} if is_global else scopes, EVENTS, ["create", "patch"])
    if any(selector.can_be_defined for selector in registry.get_selectors()) and not settings.scanning.disabled:
        rules.add([None], CRDS, ["list", "watch"])
    if situation.has_namespaces and (situation.has_patterns or not settings.scanning.disabled):
        rules.add([None], NAMESPACES, ["list"] if settings.scanning.disabled else ["list", "watch"])
    if settings.peering.mandatory and not settings.peering.standalone:
        _add_peering(rules, situation, settings.peering.name, resources)
    if settings.coordination.mode is not None and (place := settings.coordination.namespace or situation.own_namespace):
        rules.add([place], LEASES, ["get", "list", "watch", "create", "patch"])
    if registry.webhooks or registry.conversions or settings.admission.managed is not None:
        _add_admission(rules, registry, settings.admission, situation)
    return rules.list()


def _add_handled(
    rules: RuleSet,
    scopes: Collection[Scope],
    resource: Resource,
    handlers: HandlersOfResource,
    settings: OperatorSettings,
) -> None:
    rules.add(scopes, resource, ["list", "watch"])
    # Handlers of raw events write only if they say so.
    saved = (*handlers.changing, *handlers.spawning)
    writing = [handler for handler in (*saved, *handlers.watching) if _writes(handler)]
    if saved or writing:
        rules.add(scopes, resource, ["patch"])
    if "status" in resource.subresources and (writing or (saved and not _saves_to_annotations(settings))):
        rules.add(scopes, resource, ["patch"], subresource="status")
    if handlers.owners:
        rules.add(scopes, resource, ["get", "create", "patch"])
    for owner in handlers.owners:  # where OwnerReferencesPermissionEnforcement is on, to block the owner's deletion
        rules.add(scopes, owner, ["update"], subresource="finalizers")


def _writes(handler: Handler) -> bool:
    """Tell if the handler can write to the object itself, by a result or by the patch; not only the framework."""
    reads = handler.reads
    code = getattr(get_function(handler.fn), "__code__", None)
    has_children = code is not None and not _SUBHANDLING.isdisjoint(code.co_names)
    can_have_result = handler.stores_result and can_return_value(handler.fn)
    model = handler.model if isinstance(handler, ChangingHandler | SpawningHandler) else None
    has_conditions = isinstance(handler, ReconcilingHandler) and handler.sets_conditions
    has_conditions = has_conditions or (model is not None and model.has_conditions)
    return reads is None or "patch" in reads or has_children or can_have_result or has_conditions


def _saves_to_annotations(settings: OperatorSettings) -> bool:
    persistence = settings.persistence
    return isinstance(persistence.progress_storage, AnnotationsProgressStorage | SmartProgressStorage) and isinstance(
        persistence.diffbase_storage, AnnotationsDiffBaseStorage
    )


def _add_peering(rules: RuleSet, situation: Situation, name: str, resources: Collection[Resource]) -> None:
    is_clusterwide = not situation.has_namespaces
    plural = "clusterkopfpeerings" if is_clusterwide else "kopfpeerings"
    usual = Resource(PEERING_GROUPS[0], "v1", plural, namespaced=not is_clusterwide)
    resource = next((item for item in resources if item == usual), usual)
    rules.add(situation.scopes, resource, ["list", "watch", "patch"], names=[name])
    if "status" in resource.subresources:
        rules.add(situation.scopes, resource, ["patch"], subresource="status", names=[name])


def _add_admission(
    rules: RuleSet, registry: OperatorRegistry, settings: AdmissionSettings, situation: Situation
) -> None:
    from kopf._admission.servers.service import WebhookServiceServer
    from kopf._admission.webhook_declarations import CONFIGURATIONS  # most operators have no admission at all

    used = {handler.type for handler in registry.webhooks}
    for type, resource in CONFIGURATIONS.items():
        if settings.managed is not None:  # the other type is cleared: earlier versions could have had webhooks
            verbs = ["list", "watch", "create", "patch"] if type in used else ["patch"]
            rules.add([None], resource, verbs, names=[settings.managed])
    definitions = {handler.definition for handler in registry.conversions}
    if settings.managed is not None and definitions:
        rules.add([None], CRDS, ["list", "watch", "patch"], names=[*definitions])
    server = settings.server
    if isinstance(server, WebhookServiceServer) and server.certfile is None and server.context is None:
        secret = server.secret or f"{server.name}-webhook-certs"
        place = server.namespace or situation.own_namespace
        if place is not None:
            rules.add([place], _SECRETS, ["get", "create", "patch"], names=[secret])


def find_missing(rule: Rule, granted: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """List the verbs and the names (or empty) that no granted rule permits; these rules are as in roles."""
    granted = [item for item in granted if _is_for(item, rule)]
    for verb in rule.verbs:
        for name in rule.names or ("",):
            if not any(
                {verb, "*"} & {*item["verbs"]} and (not item.get("resourceNames") or name in item["resourceNames"])
                for item in granted
            ):
                yield verb, name


def _is_for(granted: Mapping[str, Any], rule: Rule) -> bool:
    _, slash, subresource = rule.resource.partition("/")
    names = {rule.resource, "*", *([f"*/{subresource}"] if slash else [])}
    return bool({rule.group, "*"} & {*granted.get("apiGroups", ())} and names & {*granted.get("resources", ())})


def find_resources(
    registry: OperatorRegistry, known: Collection[Resource]
) -> tuple[Collection[Resource], Collection[Selector]]:
    """
    Find the resources of the handlers and needs without a cluster, and the selectors without resources.

    An unknown name in a known group is taken for the plural name. ``kopf.EVERYTHING`` is a wildcard.
    """
    found: set[Resource] = set()
    unknown: list[Selector] = []
    for selector in dict.fromkeys((*registry.get_selectors(), *(need.selector for need in registry.needs))):
        if selector.any_name is EVERYTHING:
            group = "*" if selector.group is None else selector.group
            found.add(Resource(group, selector.version or "*", "*", subresources=frozenset({"status"})))
        elif selected := selector.select(known):
            found.update(selected)
        elif (guess := _guess(selector)) is not None:
            found.add(guess)
        else:
            unknown.append(selector)
    return found, unknown


def _guess(selector: Selector) -> Resource | None:
    plural = selector.plural or selector.any_name
    if not selector.group or not isinstance(plural, str) or not plural.islower() or not plural.endswith("s"):
        return None
    return Resource(
        selector.group, selector.version or "*", plural, namespaced=True, subresources=frozenset({"status"})
    )


def merge_observed(rules: Iterable[Rule], requests: Iterable[Mapping[str, Any]], situation: Situation) -> list[Rule]:
    """Add the requests of an audit of a local cluster to the rules. Raises :class:`LookupError` if it is not one."""
    merged = RuleSet()
    for rule in rules:
        resource, _, subresource = rule.resource.partition("/")
        merged.add(
            [rule.namespace or None],
            Resource(rule.group, "", resource),
            rule.verbs,
            subresource=subresource,
            names=rule.names,
        )
    for request in requests:
        namespace, resource = request["namespace"] or None, request["resource"]
        is_own = not request["agent"].startswith(_OTHERS) and request["group"] not in _OPEN_GROUPS
        if resource and request["code"] < 400 and is_own:
            is_served = namespace is None or None in situation.scopes or namespace in situation.scopes
            scopes = situation.scopes if is_served and namespace is not None else {namespace}
            target = Resource(request["group"], "", resource)
            merged.add(scopes, target, [request["verb"]], subresource=request["subresource"])
    return merged.list()


def list_defined(definitions: Iterable[Mapping[str, Any]]) -> Iterator[Resource]:
    """List the resources of these definitions. Raises :class:`LookupError` if they are incomplete."""
    for definition in definitions:
        spec = definition["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if version.get("served", True):
                yield Resource(
                    group=spec["group"],
                    version=version["name"],
                    plural=names["plural"],
                    kind=names["kind"],
                    singular=names.get("singular") or names["kind"].lower(),
                    shortcuts=frozenset(names.get("shortNames") or ()),
                    categories=frozenset(names.get("categories") or ()),
                    subresources=frozenset(version.get("subresources") or ()),
                    namespaced=spec["scope"] == "Namespaced",
                    preferred=bool(version.get("storage")),
                )
