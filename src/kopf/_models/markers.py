"""What Kubernetes adds to JSON schemas: its rules and list types, as marks on the types of the fields."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict


@dataclasses.dataclass(frozen=True)
class Rule:
    """
    A validation rule in CEL: ``kopf.Rule("self.min <= self.max", message="…")``. Those of a resource see it as a whole.

    ``message`` is for those whose objects are refused; ``message_expression`` makes it in CEL. ``field_path`` is what
    they are told to be wrong, e.g. ``".spec.min"``. ``reason`` is ``"FieldValueInvalid"`` by default.
    ``optional_old_self`` lets a rule with ``oldSelf`` be checked for new objects, too.
    """

    rule: str
    message: str | None = None
    message_expression: str | None = dataclasses.field(default=None, kw_only=True)
    reason: str | None = dataclasses.field(default=None, kw_only=True)
    field_path: str | None = dataclasses.field(default=None, kw_only=True)
    optional_old_self: bool | None = dataclasses.field(default=None, kw_only=True)

    def render(self) -> dict[str, Any]:
        """Give the item of ``x-kubernetes-validations``."""
        values = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
            "fieldPath": self.field_path,
            "optionalOldSelf": self.optional_old_self,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """
    What Kubernetes is told of a field besides its type: ``Annotated[list[Port], kopf.Schema(list_type="map", …)]``.

    ``list_type`` & ``list_map_keys`` say how lists are merged by the server-side apply, and what is unique in them;
    ``map_type`` does it for objects. ``int_or_string`` accepts both. ``preserve_unknown`` keeps the fields that the
    type does not have. ``embedded`` is for whole Kubernetes objects. An ``immutable`` value cannot be changed. The
    ``rules`` see the value as ``self``.
    """

    list_type: Literal["atomic", "set", "map"] | None = None
    list_map_keys: Sequence[str] = ()
    map_type: Literal["atomic", "granular"] | None = None
    int_or_string: bool = False
    preserve_unknown: bool = False
    embedded: bool = False
    immutable: bool = False
    rules: Sequence[Rule] = ()

    def render(self) -> dict[str, Any]:
        """Give the fields of the schema."""
        rules = [*self.rules, *([_IMMUTABLE] if self.immutable else [])]
        values = {
            "x-kubernetes-list-type": self.list_type,
            "x-kubernetes-list-map-keys": [*self.list_map_keys],
            "x-kubernetes-map-type": self.map_type,
            "x-kubernetes-int-or-string": self.int_or_string,
            "x-kubernetes-preserve-unknown-fields": self.preserve_unknown,
            "x-kubernetes-embedded-resource": self.embedded,
            "x-kubernetes-validations": [rule.render() for rule in rules],
        }
        return {name: value for name, value in values.items() if value}


_IMMUTABLE = Rule("self == oldSelf", message="It is immutable.")


class ConditionItem(TypedDict):
    """One of the conditions in the status of an object."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    lastTransitionTime: datetime.datetime
    observedGeneration: NotRequired[int]


ConditionList = Annotated[list[ConditionItem], Schema(list_type="map", list_map_keys=("type",))]
"""The type of ``status.conditions``, as :func:`kopf.conditions` writes them."""
