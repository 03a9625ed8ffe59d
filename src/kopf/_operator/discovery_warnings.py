"""Warnings about resources that are not as the handlers need them: absent, ambiguous, unavailable, not watchable."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable

from kopf._client.errors import APIError, APINetworkError
from kopf._client.http.api import APIClient
from kopf._client.resources.discovery import Discovery, discover
from kopf._handlers.registry import HandlersOfResource, OperatorRegistry, find_mention
from kopf._logging.once import Once
from kopf._values.resources import Resource
from kopf._values.selectors import EVERYTHING, Selector
from kopf._values.similar_names import suggest
from kopf._values.user_functions import describe_function

logger = logging.getLogger(__name__)

_SUGGESTING_TIMEOUT = 10.0
"""How long the search for similar resources may delay the warning about absent ones, in seconds."""

_MAX_NAME = 100
"""The maximal length of a shown improper name, in characters."""


class DiscoveryWarnings:
    """Warns about problems with the resources of the handlers: once for each problem, until it changes."""

    def __init__(self, api: APIClient, registry: OperatorRegistry) -> None:
        self._api = api
        self._registry = registry
        self._said = Once()
        self._unmatched: set[Selector] = set()
        self._unavailable: frozenset[str] = frozenset()

    @property
    def are_given(self) -> bool:
        """Whether anything was missing or ambiguous at any time."""
        return len(self._said) > 0 or bool(self._unmatched)

    def look_at(self, discovery: Discovery, group: asyncio.TaskGroup) -> None:
        """Compare the cluster's resources with the handlers' resources. Further requests are tasks of the group."""
        self._warn_of_unavailable(discovery)
        for name in sorted(discovery.improper):
            shown = name[:_MAX_NAME]
            self._warn_once(f"{shown!r} is skipped: it is no proper name of a resource or of an API version.")
        for selector, found in self._registry.get_ambiguities(discovery.resources).items():
            names = ", ".join(sorted(map(repr, found)))
            self._warn_once(f"{selector} is ambiguous, so it is not served: it can be any of {names}. Add a group.")
        absent = [item for item in self._registry.get_unmatched(discovery.resources) if not _is_hidden(item, discovery)]
        unmatched = [item for item in absent if item not in self._unmatched]
        if unmatched:
            self._unmatched.update(unmatched)
            group.create_task(self._warn_of_unmatched(unmatched), name="search of similar resources")
        unwatchable = sorted((item for item in discovery.resources if not is_watchable(item)), key=str)
        for handler in self._registry.resources if unwatchable else ():
            if handler.selector is not None and handler.selector.is_specific:
                for resource in handler.selector.select(unwatchable):
                    verbs = ", ".join(sorted(resource.verbs))
                    self._warn_once(f"{resource!r} cannot be served: its API cannot list & watch, only {verbs}.")

    def _warn_of_unavailable(self, discovery: Discovery) -> None:
        unavailable = frozenset(discovery.unavailable)
        if unavailable - self._unavailable:
            details = "; ".join(f"{name} ({error})" for name, error in discovery.unavailable.items())
            logger.warning("Some API groups are unavailable, so their resources are unknown for now: %s", details)
        elif self._unavailable and not unavailable:
            logger.info("All API groups are available again.")
        self._unavailable = unavailable

    async def _warn_of_unmatched(self, selectors: Iterable[Selector]) -> None:
        """Warn about absent resources, and suggest similar ones, also from groups that are not needed otherwise."""
        resources: Collection[Resource] = ()
        with contextlib.suppress(APIError, APINetworkError, TimeoutError):  # then, there is nothing to suggest
            async with asyncio.timeout(_SUGGESTING_TIMEOUT):
                resources = (await discover(self._api, [Selector(EVERYTHING)])).resources
        for selector in selectors:
            mention = find_mention(self._registry.resources, selector)
            place = f", which is in {mention}" if mention else ""
            parts = [f"No resource is found for {selector}{place}.", suggest(selector, resources)]
            logger.warning(" ".join([*filter(None, parts), "It will be served as soon as it appears."]))

    def _warn_once(self, message: str) -> None:
        if self._said.is_new(message):
            logger.warning(message)


def _is_hidden(selector: Selector, discovery: Discovery) -> bool:
    """Tell if the resource can exist in an API version that is unavailable now: then, nobody knows if it is absent."""
    versions = (name.rpartition("/") for name in discovery.unavailable)
    return any(selector.group == group and selector.version in (None, version) for group, _, version in versions)


def is_watchable(resource: Resource) -> bool:
    """Tell if the resource can be watched: some are functions of the API, e.g. token reviews."""
    return not resource.verbs or {"list", "watch"} <= resource.verbs


def warn_of_clashes(resource: Resource, handlers: HandlersOfResource) -> None:
    """Warn about different handlers of the resource with the same id."""
    for one, two in handlers.find_clashes():
        logger.warning(
            "Different handlers of %r have the same id %r: %s and %s. Only one of them is called for each change. "
            "Give them different ids: e.g. @kopf.on.create(…, id='…').",
            resource,
            two.id,
            describe_function(one.fn),
            describe_function(two.fn),
        )
