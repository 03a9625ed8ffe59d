"""
The budgets of validation rules: definitions are refused if their rules could cost too much for the largest objects.

A rule inside of lists and maps is evaluated for each item; without limits, as many are assumed as fit in a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kopf_cluster import statuses
from kopf_cluster.cel.costs import estimate
from kopf_cluster.cel.rules import RuleNode
from kopf_cluster.cel.values import MAX_REQUEST, least_bytes
from kopf_cluster.statuses import FieldError

_RULE_LIMIT: Final = 10_000_000
_TOTAL_LIMIT: Final = 100_000_000
_MAX_BLAMED: Final = 4  # for the total
_ADVICE: Final = (
    "(try simplifying the rule(s), or adding maxItems, maxProperties, and maxLength where arrays, maps, "
    "and strings are declared)"
)
_ALL: Final = "estimated rule & messageExpression cost total"


class _Cost(NamedTuple):
    path: str
    name: str
    amount: int


def validate(node: RuleNode | None, path: str) -> Iterator[FieldError]:
    """Yield what is too expensive in the rules of a schema, which stands at this path of the definition."""
    costs = list(_estimate(node, path, 1)) if node is not None else []
    for cost in costs:
        if cost.amount > _RULE_LIMIT:
            yield statuses.forbidden_value(cost.path, _excess(f"estimated {cost.name} cost", cost.amount, _RULE_LIMIT))
    total = sum(cost.amount for cost in costs)
    if total > _TOTAL_LIMIT:
        expensive = sorted((cost for cost in costs if cost.amount >= _TOTAL_LIMIT // 100), key=lambda one: -one.amount)
        for cost in expensive[:_MAX_BLAMED]:
            yield statuses.forbidden_value(
                cost.path, f"contributed to {_ALL} exceeding cost limit for entire OpenAPIv3 schema"
            )
        yield statuses.forbidden_value(
            path, _excess(f"x-kubernetes-validations {_ALL} for entire OpenAPIv3 schema", total, _TOTAL_LIMIT)
        )


def _estimate(node: RuleNode, path: str, times: int | None) -> Iterator[_Cost]:
    """Estimate all rules here and inside; it is not known how many times they are evaluated if there is no limit."""
    repeated = MAX_REQUEST // (least_bytes(node.schema, root=node.root) + 1) if times is None else times
    for index, rule in enumerate(node.rules):
        for name, program in (("rule", rule.program), ("messageExpression", rule.message_program)):
            if program is not None and not rule.optional:  # what is not wrapped for the library
                cost = estimate(program.serialize(), node.schema, root=node.root)
                yield _Cost(f"{path}.x-kubernetes-validations[{index}].{name}", name, cost * repeated)
    for field, sub in node.fields.items():
        yield from _estimate(sub, f"{path}.properties[{field}]", times)
    inside = ("additionalProperties", "maxProperties", node.values), ("items", "maxItems", node.items)
    for word, limit, inner in inside:
        if inner is not None:
            most = node.schema.get(limit)
            yield from _estimate(inner, f"{path}.{word}", None if times is None or most is None else times * most)


def _excess(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100" if factor > 100 else f"{factor:.1f}" if factor >= 1.5 else f"{factor:f}"
    return f"{what} exceeds budget by factor of {shown}x {_ADVICE}"
