"""Markers for the types of fields: the additions of Kubernetes to JSON schemas, such as rules and list types."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict


@dataclasses.dataclass(frozen=True)
class Rule:
    """
    A validation rule in CEL: ``kopf.Rule("self.min <= self.max", message="…")``. Rules of a resource see whole objects.

    :param rule: the expression in CEL.
    :param message: the message for users when the rule refuses their object.
    :param message_expression: an expression in CEL that makes this message.
    :param reason: the reason of the refusal; the default in Kubernetes is ``"FieldValueInvalid"``.
    :param field_path: the wrong field for the message, e.g. ``".spec.min"``.
    :param optional_old_self: whether to check a rule with ``oldSelf`` for new objects, too.
    """

    rule: str
    message: str | None = None
    message_expression: str | None = dataclasses.field(default=None, kw_only=True)
    reason: str | None = dataclasses.field(default=None, kw_only=True)
    field_path: str | None = dataclasses.field(default=None, kw_only=True)
    optional_old_self: bool | None = dataclasses.field(default=None, kw_only=True)

    def render(self) -> dict[str, Any]:
        """Make the item of ``x-kubernetes-validations``."""
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
    The schema of a field besides its type: ``Annotated[list[Port], kopf.Schema(list_type="map", …)]``.

    :param list_type: the way of the server-side apply to merge lists: ``"atomic"``, ``"set"``, or ``"map"``.
    :param list_map_keys: the keys that identify the items of a list with the type ``"map"``.
    :param map_type: the way of the server-side apply to merge objects: ``"atomic"`` or ``"granular"``.
    :param int_or_string: whether the field accepts integers and strings.
    :param preserve_unknown: whether the field keeps subfields that its type does not have.
    :param embedded: whether the field is a whole Kubernetes object.
    :param immutable: whether the value can never change.
    :param rules: the validation rules; they see the value as ``self``.
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
        """Make the fields of the schema."""
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
    """One condition in the status of an object."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    lastTransitionTime: datetime.datetime
    observedGeneration: NotRequired[int]


ConditionList = Annotated[list[ConditionItem], Schema(list_type="map", list_map_keys=("type",))]
"""The type of ``status.conditions``, as :func:`kopf.conditions` writes them."""
