"""
The preflight: it names all missing permissions together when the operator starts, and not one after another.

It asks the server by one request for each namespace, and by more only if the answer is incomplete and something seems
to be missing. If these requests fail, it says nothing, and the operator goes on: later denials are logged then. Source:
Kubernetes documentation, "SelfSubjectRulesReview", "SelfSubjectAccessReview".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APINetworkError
from kopf._client.resources.discovery import discover
from kopf._controller.runtime import Runtime
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.discovery_warnings import is_watchable
from kopf._operator.namespace_patterns import NamespacePattern, get_exact
from kopf._operator.namespaces import Namespaces
from kopf._operator.resource_observer import ResourceObserver
from kopf._operator.tasks import cancel
from kopf._packaging.rules import Rule, Situation, find_missing, infer_rules
from kopf._values import codec
from kopf._values.permissions import make_rule, name_role, show_rule
from kopf._values.records import replace
from kopf._values.resources import CRDS, NAMESPACES, Resource

logger = logging.getLogger(__name__)

_GROUP = "authorization.k8s.io"
_TIMEOUT = 5.0
"""How long one request may take, in seconds."""
_MAX_NAMESPACES = 20
"""The maximum of namespaces to ask about: usually, all have the same permissions."""
_MAX_QUESTIONS = 100
"""The maximum of questions about single permissions, where the rules are incomplete."""
_NOWHERE = "kopf-preflight"
"""A namespace that does not exist, so that only the permissions for the whole cluster hold there."""
_MINOR = (CRDS.plural, NAMESPACES.plural)
"""The resources without which the operator works, but notices fewer changes."""

_ERRORS = (APIError, APINetworkError, LoginError, ValueError, LookupError, TypeError, AttributeError)


class Preflight:
    """Logs the missing permissions once, when the resources are known."""

    def __init__(
        self,
        runtime: Runtime,
        registry: OperatorRegistry,
        resources: ResourceObserver,
        namespaces: Namespaces,
        patterns: Collection[NamespacePattern],
        command: Sequence[str] = (),
    ) -> None:
        """The ``command`` is the one that prints all roles, by its arguments."""
        self._runtime = runtime
        self._registry = registry
        self._namespaces = namespaces
        self._patterns = patterns
        self._command = command
        self._resources = resources
        self._reviews: dict[str, asyncio.Task[Mapping[str, Any]]] = {}

    async def run(self) -> None:
        """Log the missing permissions once; then wait forever, like all tasks of the operator."""
        try:
            # As early as possible: before any denial.
            for place in sorted(get_exact(self._patterns))[:_MAX_NAMESPACES] if self._patterns else [_NOWHERE]:
                self._start_review(place)
            discovery, _ = await self._resources.found
            resources = {resource for resource in discovery.resources if is_watchable(resource)}
            if self._registry.needs:
                needed = await discover(self._runtime.api.for_tools, [need.selector for need in self._registry.needs])
                resources |= needed.resources
            rules = self._infer(resources)
            if missing := [rule async for rule in self._find_missing(rules)]:
                self._say(missing)
        except _ERRORS as e:
            logger.debug("Cannot check for missing permissions: %s", e)
        finally:
            await cancel([*self._reviews.values()])
            self._reviews.clear()
        await asyncio.Event().wait()

    def _infer(self, resources: Collection[Resource]) -> list[Rule]:
        exact = get_exact(self._patterns)
        situation = Situation(
            scopes=frozenset(sorted(self._namespaces.names, key=str)[:_MAX_NAMESPACES]),
            has_namespaces=bool(self._patterns),
            has_patterns=exact != {*self._patterns},
        )
        rules = infer_rules(self._registry, self._runtime.settings, resources, situation)
        return [rule for rule in rules if not rule.resource.endswith("/finalizers")]  # few clusters check these

    def _start_review(self, place: str) -> asyncio.Task[Mapping[str, Any]]:
        if place not in self._reviews:
            self._reviews[place] = asyncio.create_task(self._review("SelfSubjectRulesReview", {"namespace": place}))
        return self._reviews[place]

    async def _find_missing(self, rules: Collection[Rule]) -> AsyncIterator[Rule]:
        everywhere = min(self._reviews, default=_NOWHERE)  # one of the reviews that are made anyway
        questions = 0
        for rule in rules:
            status = await self._start_review(rule.namespace or everywhere)
            verbs: dict[str, None] = {}
            for verb, name in find_missing(rule, status.get("resourceRules") or ()):
                if status.get("incomplete"):
                    questions += 1
                    if questions > _MAX_QUESTIONS or await self._is_allowed(rule, verb, name):
                        continue
                verbs[verb] = None
            if verbs:
                yield replace(rule, verbs=tuple(verbs))

    async def _is_allowed(self, rule: Rule, verb: str, name: str) -> bool:
        resource, _, subresource = rule.resource.partition("/")
        asked = {"verb": verb, "group": rule.group, "resource": resource, "subresource": subresource, "name": name}
        attributes = {**asked, "namespace": rule.namespace}
        return bool((await self._review("SelfSubjectAccessReview", {"resourceAttributes": attributes}))["allowed"])

    async def _review(self, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        payload = {"apiVersion": f"{_GROUP}/v1", "kind": kind, "spec": spec}
        api, url = self._runtime.api.for_tools, f"/apis/{_GROUP}/v1/{kind.lower()}s"
        answer = codec.decode_answer(await api.post(url, payload=payload, timeout=_TIMEOUT, backoffs=()))
        status: Mapping[str, Any] = answer["status"]
        return status

    def _say(self, missing: Collection[Rule]) -> None:
        import shlex  # most operators lack nothing

        is_minor = all(rule.resource in _MINOR for rule in missing)
        for rule in missing:
            self._runtime.told_permissions.update((rule.group, rule.resource, verb) for verb in rule.verbs)
        # In one line: the formatters of logs escape line feeds, and people copy the rules from there.
        logger.log(
            logging.INFO if is_minor else logging.WARNING,
            "The operator lacks permissions. Add these rules to %s.%s",
            "; to ".join(_list_roles(missing)),
            f" To print all its roles: {shlex.join(self._command)}" if self._command else "",
        )


def _list_roles(missing: Collection[Rule]) -> Iterator[str]:
    for namespace in sorted({rule.namespace for rule in missing}):
        rules = [
            show_rule(make_rule(rule.group, [rule.resource], rule.verbs, rule.names))
            for rule in missing
            if rule.namespace == namespace
        ]
        yield f"{name_role(namespace or None).rstrip(',')}: [{', '.join(rules)}]"
