"""
Admission: the server calls mutating webhooks one after another, then validating ones all at once.

Both happen in the middle of a write, as questions of its session: see `sessions`.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kopf_cluster import codec, sessions, statuses
from kopf_cluster.admission import reviews
from kopf_cluster.admission.configurations import Attributes, Configurations, Operation, Webhook
from kopf_cluster.admission.webhook_calls import Caller, CallError
from kopf_cluster.cel import expressions
from kopf_cluster.kinds import objects
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.store.watch_cache import Key

logger = logging.getLogger("kopf.cluster")

# The maximal number of remembered calls.
_REMEMBERED: Final = 10_000

_VARIABLES: Final = {"object": "dyn", "oldObject": "dyn", "request": "dyn"}


class AdmissionCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an admission webhook, and its outcome."""

    configuration: str
    """The name of the webhook configuration."""
    webhook: str
    """The name of the webhook in the configuration."""
    mutating: bool
    """Whether the webhook can change the object."""
    operation: str
    """``CREATE``, ``UPDATE``, ``DELETE``, or ``CONNECT``."""
    resource: str
    """The plural name, with the subresource if there is one: ``pods``, ``pods/status``."""
    namespace: str
    """Empty for cluster-wide objects."""
    name: str
    """The name of the object."""
    dry_run: bool
    """Whether the write stores nothing."""
    allowed: bool
    """Whether the webhook allows the operation; for a failed call, whether its failures are ignored."""
    patched: bool = False
    """Whether the webhook changes the object."""
    error: str = ""
    """The reason of a failed call; empty if the webhook has answered."""
    audit_annotations: Mapping[str, str] = {}
    """The annotations for the audit, from the answer of the webhook."""


class Gate:
    """Admission of writes: calls the webhooks. It is false as long as there are no webhooks."""

    def __init__(self, configurations: Configurations, caller: Caller) -> None:
        self.calls: collections.deque[AdmissionCall] = collections.deque(maxlen=_REMEMBERED)
        self._configurations = configurations
        self._caller = caller

    def __bool__(self) -> bool:
        return bool(self._configurations) and sessions.current() is not None

    def mutate(
        self,
        operation: Operation,
        kind: Kind,
        new: Obj,
        old: Obj | None,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Obj:
        """Return the object as the webhooks leave it, with its fixed metadata restored."""
        metadata = new["metadata"]
        attributes = self._describe(operation, kind, new, old, subresource, dry_run)
        mutated = self._review(attributes, mutating=True)
        if mutated is None or mutated is new or mutated == new:
            return new
        try:
            cleaned = objects.settle_metadata(mutated.get("metadata"))
        except ValueError as error:
            raise statuses.internal(f"the object is broken by mutating webhooks: {error}") from None
        for field in _FIXED:
            cleaned.pop(field, None)
            if field in metadata:
                cleaned[field] = metadata[field]
        return {**mutated, "metadata": cleaned}

    def validate(
        self,
        operation: Operation,
        kind: Kind,
        new: Obj | None,
        old: Obj | None,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> None:
        self._review(self._describe(operation, kind, new, old, subresource, dry_run), mutating=False)

    def review_deletion(self, kind: Kind, old: Obj, *, dry_run: bool = False) -> None:
        attributes = self._describe("DELETE", kind, None, old, "", dry_run)
        self._review(attributes, mutating=True)
        self._review(attributes, mutating=False)

    def review_connection(self, kind: Kind, key: Key, subresource: str, options: Obj) -> None:
        attributes = Attributes("CONNECT", kind, subresource, *key, options, None)
        mutated = self._review(attributes, mutating=True)
        self._review(dataclasses.replace(attributes, obj=mutated), mutating=False)

    @staticmethod
    def _describe(
        operation: Operation,
        kind: Kind,
        new: Obj | None,
        old: Obj | None,
        subresource: str,
        dry_run: bool,
    ) -> Attributes:
        metadata = (new or old or {}).get("metadata") or {}
        namespace = metadata.get("namespace") or (metadata.get("name") if kind.bucket == "namespaces" else None)
        return Attributes(operation, kind, subresource, namespace or "", metadata.get("name") or "", new, old, dry_run)

    def _review(self, attributes: Attributes, *, mutating: bool) -> Obj | None:
        """Return the object as the webhooks leave it, or raise the refusal."""
        session = sessions.current()
        if session is None or not (selected := self._configurations.select(attributes, mutating=mutating)):
            return attributes.obj
        question = (mutating, attributes.operation, codec.encode([attributes.obj, attributes.old]))
        ask = self._mutate if mutating else self._validate
        return session.answer(question, lambda: ask(session, attributes, selected))

    async def _mutate(
        self,
        session: sessions.Session,
        attributes: Attributes,
        selected: list[tuple[Webhook, Kind]],
    ) -> Obj | None:
        """Call the webhooks one by one; repeat those with the policy ``IfNeeded`` if later ones change the object."""
        seen: list[tuple[Webhook, Kind, Obj | None]] = []
        for webhook, kind in selected:
            obj = await self._call(session, webhook, kind, attributes)
            attributes = dataclasses.replace(attributes, obj=obj)
            seen.append((webhook, kind, obj))
        for webhook, kind, obj in seen:
            if webhook.is_reinvoked and obj != attributes.obj:
                obj = await self._call(session, webhook, kind, attributes)
                attributes = dataclasses.replace(attributes, obj=obj)
        return attributes.obj

    async def _validate(
        self,
        session: sessions.Session,
        attributes: Attributes,
        selected: list[tuple[Webhook, Kind]],
    ) -> Obj | None:
        outcomes = await asyncio.gather(
            *(self._call(session, webhook, kind, attributes) for webhook, kind in selected), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return attributes.obj

    async def _call(
        self,
        session: sessions.Session,
        webhook: Webhook,
        kind: Kind,
        attributes: Attributes,
    ) -> Obj | None:
        """Call one webhook; return the object as it leaves it, or raise the refusal."""
        try:
            review = reviews.make_review(webhook, attributes, kind)
            if not _meets_conditions(webhook, review["request"]):
                return attributes.obj
            body = await self._caller.call(webhook.raw.get("clientConfig") or {}, review, webhook.timeout)
            response = reviews.read_response(webhook, review, body)
            allowed = response.allowed
            shown = review["request"]["object"]
            if shown is None and response.patch and allowed and webhook.mutating:
                raise statuses.internal(
                    f'admission webhook "{webhook.name}" attempted to modify the object, '
                    "which is not supported for this operation"
                )
            patched = reviews.apply_patch(response, shown) if allowed and webhook.mutating else shown
        except (CallError, reviews.ReviewError, expressions.EvaluationError) as error:
            self._remember(webhook, attributes, allowed=webhook.ignores_failures, error=str(error))
            if webhook.ignores_failures:
                logger.warning(
                    'Failed calling webhook, failing open %s: failed calling webhook "%s": %s',
                    webhook.name,
                    webhook.name,
                    error,
                )
                return attributes.obj
            what = "failed to call webhook: " if isinstance(error, CallError) else ""
            raise statuses.internal(f'failed calling webhook "{webhook.name}": {what}{error}') from None
        self._remember(
            webhook,
            attributes,
            allowed=allowed,
            patched=patched != shown,
            audit_annotations=response.auditAnnotations or {},
        )
        session.warnings += response.warnings or ()
        if not allowed:
            raise reviews.deny(webhook, response.status)
        return reviews.take_back(patched, attributes)

    def _remember(self, webhook: Webhook, attributes: Attributes, **outcome: Any) -> None:
        self.calls.append(
            AdmissionCall(
                configuration=webhook.configuration,
                webhook=webhook.name,
                mutating=webhook.mutating,
                operation=attributes.operation,
                resource=attributes.resource,
                namespace=attributes.namespace,
                name=attributes.name,
                dry_run=attributes.dry_run,
                **outcome,
            )
        )


# The metadata that webhooks cannot change.
_FIXED: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def _meets_conditions(webhook: Webhook, request: Obj) -> bool:
    """Whether all match conditions of the webhook are true."""
    values = {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "request": {key: value for key, value in request.items() if key not in ("object", "oldObject")},
    }
    errors = []
    for condition in webhook.raw.get("matchConditions") or ():
        try:
            met = expressions.compile_expression(condition["expression"], _VARIABLES).evaluate(values)
        except expressions.CompilationError as error:
            raise statuses.not_implemented(
                f'the match condition "{condition.get("name")}" of the webhook "{webhook.name}" ({error})'
            ) from None
        except expressions.EvaluationError as error:
            errors.append(error)
        else:
            if met is not True:
                return False
    if errors:
        raise errors[0]
    return True
