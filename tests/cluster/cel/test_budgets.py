"""
What rules may cost: the estimates are those of kube-apiserver, and so is what it refuses.
"""

from __future__ import annotations

from typing import Any

import pytest

from kopf_cluster.cel.costs import estimate
from kopf_cluster.cel.expressions import compile_expression
from kopf_cluster.cel.values import least_bytes, most_elements, type_of
from tests.cluster.conftest import CRDS, Client, Reply, make_definition

pytest.importorskip("cel_expr_python")

Obj = dict[str, Any]


def text(**limits: Any) -> Obj:
    return {"type": "string", **limits}


def listed(items: Obj | str, **limits: Any) -> Obj:
    return {"type": "array", "items": {"type": items} if isinstance(items, str) else items, **limits}


def mapped(values: Obj | str, **limits: Any) -> Obj:
    return {"type": "object", "additionalProperties": {"type": values} if isinstance(values, str) else values, **limits}


def fields(**properties: Obj) -> Obj:
    return {"type": "object", "properties": properties}


EITHER = {"x-kubernetes-int-or-string": True}
OBJECT = {**fields(required=text(), optional=text()), "required": ["required"]}
JOINED = {"str": text(), "before": text(maxLength=2), "after": text(maxLength=4)}


# The numbers have been seen in the API server, for the same rules and schemas.
@pytest.mark.parametrize(
    ("schema", "rule", "cost"),
    [
        (listed("number"), "self.all(x, true)", 4718591),
        (listed("number", maxItems=10), "self.all(x, true)", 32),
        (listed("string"), "self.all(x, true)", 3145727),
        (listed("boolean"), "self.all(x, true)", 1887437),
        (listed(listed("number")), "self.all(x, true)", 3145727),
        (listed(text(format="date")), "self.all(x, true)", 725936),
        (listed(text(format="date-time")), "self.all(x, true)", 428963),
        (listed(text(format="duration")), "self.all(x, true)", 2359295),
        (listed(EITHER), "self.all(x, true)", 4718591),
        (listed("number", maxItems=10), "self.all(x, self.all(y, true))", 352),
        (listed("number", maxItems=10), "self.all(x, self.all(y, self.all(z, true)))", 3552),
        (listed("number"), "self.all(x, x == 0.0)", 6291454),
        (mapped("number"), "self.all(x, true)", 1348169),
        (mapped("string"), "self.all(x, true)", 1179647),
        (mapped("boolean"), "self.all(x, true)", 943718),
        (mapped(mapped("number")), "self.all(x, true)", 1179647),
        (mapped("string"), "self.all(x, x.contains(self[x]))", 2752507),
        (mapped("string", maxProperties=10), "self.all(x, x.contains(self[x]))", 72),
        (listed(mapped(OBJECT)), 'self.all(x, x["y"].required == "z")', 7340027),
        (listed(mapped("number")), "self.all(x, x.y == 25.2)", 6291452),
        (listed(mapped("number")), "self[0].x > 2.0", 4),
        (text(), "self.contains('test')", 314574),
        (text(maxLength=10), "self.contains('test')", 5),
        (text(), "self.startsWith('test')", 2),
        (text(), "self.endsWith('test')", 2),
        (text(), 'size(self + "hello") > size("hello")', 314578),
        (text(maxLength=4), 'size(self + "hello") > size("hello")', 7),
        (text(), 'self.matches("x")', 314574),
        (text(maxLength=50), 'self.matches("x")', 22),
        (text(), '"".matches("(((((((((())))))))))[0-9]")', 7),
        (text(), 'self.matches("")', 1),
        (text(), 'self == "x"', 2),
        (text(maxLength=0), 'self == "x"', 1),
        (listed("number"), "self[1] == 0.0", 2),
        (listed("string"), "self[1] == self[1]", 314577),
        (listed(EITHER), "self[0] == 5", 3),
        (listed(fields(a=text())), "self[0] == null", 2),
        (listed(listed("number")), "self[0][0] == -1.0", 3),
        (mapped("integer"), "oldSelf.size() == self.size()", 5),
        (mapped(text(format="date-time")), 'self["a"] == self["b"]', 8),
        (text(), "self.find('[0-9]+') == ''", 629147),
        (listed("string"), "self.join(' ') == 'aa bb'", 329853068905),
        (listed(text(maxLength=10), maxItems=10), "self.join(' ') == 'aa bb'", 43),
        (listed("string"), "self.isSorted() == true", 329854432052),
        (listed(text(maxLength=10), maxItems=10), "self.isSorted() == true", 52),
        (fields(**JOINED), "self.str.replace(self.before, self.after) == 'does not matter'", 629154),
        (
            fields(**{**JOINED, "str": text(maxLength=4)}),
            "self.str.replace(self.before, self.after) == 'does not matter'",
            12,
        ),
        (fields(str=text(), by=text()), "self.str.split(self.by) == []", 629160),
        (text(), "self.lowerAscii() == 'lower!'", 314575),
        (text(enum=["A", "B", "LongValue"]), "self.contains('A')", 2),
        (text(enum=["A", "B", "LongValue"], maxLength=1000), "self.contains('A')", 401),
    ],
)
def test_costs(schema: Obj, rule: str, cost: int) -> None:
    kind = type_of(schema)
    assert estimate(compile_expression(rule, {"self": kind, "oldSelf": kind}).serialize(), schema, root=False) == cost


@pytest.mark.parametrize(
    ("rule", "cost"),
    [
        ("true ? self.a == 'x' : self.a == self.a", 6),  # the worse one of the two
        ("self.a < 'x' || self.n < 5", 6),  # numbers are compared at once
        ("self.a in ['x', 'y']", 14),
        ("self.a in self.m", 5),
        ("self.l.map(x, x + 'a').all(y, y.startsWith('b'))", 119),
        ("self.l.filter(x, x != '').size() > 1", 85),
        ("self.l.exists_one(x, x == 'a')", 24),
        ("cel.bind(v, self.a, v == 'x')", 14),
        ("has(self.a) && !has(self.n)", 3),
        ("{'a': 1}.size() == 1", 32),
        ("sets.contains(self.l, self.l)", 30),
        ("quantity(self.a).isGreaterThan(quantity('1'))", 6),
        ("type(self.a) == string", 4),
        ("duration(self.a) < duration('5m') && timestamp(self.a) == timestamp(self.a)", 12),
        ("quantity(self.a).add(1) == quantity(self.a).sub(1)", 11),
        ("self.?a.orValue('') == 'x'", 4),
        ("self.?l.orValue([]).all(x, x == 'a')", 39),
        ("self.l[?0].hasValue()", 4),
        ("(self.l + ['x']).size() > 1", 15),
    ],
)
def test_costs_of_what_is_put_together(rule: str, cost: int) -> None:
    schema = fields(
        a=text(maxLength=5), n={"type": "integer"}, m=mapped("string"), l=listed(text(maxLength=5), maxItems=5)
    )
    assert estimate(compile_expression(rule, {"self": "dyn"}).serialize(), schema, root=False) == cost


def test_sizes() -> None:
    assert most_elements(fields(a=text())) == most_elements({"type": "integer"}) == 0
    assert most_elements(text(format="byte", maxLength=5)) == 5
    assert most_elements(text(maxLength=5)) == 20
    assert least_bytes(OBJECT) == 2 + len("required") + 2 + 4
    assert least_bytes({**OBJECT, "properties": {"required": text(default="x")}}) == 2


def refusals(reply: Reply) -> list[str]:
    assert reply.status == 422, reply
    return [f"{cause['field']}: {cause['message']}" for cause in reply.body["details"]["causes"]]


SCHEMA = "spec.validation.openAPIV3Schema"
ADVICE = (
    "(try simplifying the rule(s), or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
    "strings are declared)"
)


@pytest.mark.parametrize(
    ("message", "expected", "factor"),
    [(4096, 4096, "5.4x"), (4096, 512, ""), (1024, 1024, ""), (4096, 790, "1.035858x")],
)
async def test_rules_inside_of_lists_count_for_each_item(
    client: Client,
    message: int,
    expected: int,
    factor: str,
) -> None:
    rule = {"rule": "!self.message.contains(self.expected)"}
    item = {
        **fields(message=text(maxLength=message), expected=text(maxLength=expected)),
        "x-kubernetes-validations": [rule],
    }
    definition = make_definition(spec=fields(cases=listed(item, maxItems=20)))
    reply = await client.call("POST", CRDS, json=definition)
    if factor:
        path = f"{SCHEMA}.properties[spec].properties[cases].items.x-kubernetes-validations[0].rule"
        assert refusals(reply) == [
            f"{path}: Forbidden: estimated rule cost exceeds budget by factor of {factor} {ADVICE}"
        ]
    else:
        assert reply.status == 201


async def test_what_has_no_limits_is_refused_also_for_the_total(client: Client) -> None:
    rules = [{"rule": "self.keys.all(a, self.keys.exists(b, a.id == b.id))"}, {"rule": "self.keys.size() > 0"}]
    spec = {**fields(keys=listed(fields(id=text()))), "x-kubernetes-validations": rules}
    path = f"{SCHEMA}.properties[spec].x-kubernetes-validations[0].rule"
    total = "estimated rule & messageExpression cost total"
    assert refusals(await client.call("POST", CRDS, json=make_definition(spec=spec))) == [
        f"{path}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {ADVICE}",
        f"{path}: Forbidden: contributed to {total} exceeding cost limit for entire OpenAPIv3 schema",
        f"{SCHEMA}: Forbidden: x-kubernetes-validations {total} for entire OpenAPIv3 schema exceeds budget by factor "
        f"of more than 100x {ADVICE}",
    ]
    spec["properties"]["keys"] |= {"maxItems": 16, "items": fields(id=text(maxLength=64))}
    assert (await client.call("POST", CRDS, json=make_definition(spec=spec))).status == 201


async def test_messages_have_costs_too(client: Client) -> None:
    rule = {"rule": "self.a == 'x'", "messageExpression": "self.l.map(x, x.replace('a', 'bc')).join(',')"}
    spec = {**fields(a=text(), l=listed("string")), "x-kubernetes-validations": [rule]}
    path = f"{SCHEMA}.properties[spec].x-kubernetes-validations[0].messageExpression"
    assert refusals(await client.call("POST", CRDS, json=make_definition(spec=spec)))[0] == (
        f"{path}: Forbidden: estimated messageExpression cost exceeds budget by factor of more than 100x {ADVICE}"
    )


async def test_items_with_no_limit_are_as_many_as_fit_in_a_request(client: Client) -> None:
    def define(length: int) -> Obj:
        item = {**fields(a=text(maxLength=length)), "x-kubernetes-validations": [{"rule": "self.a.contains('x')"}]}
        return make_definition(spec=fields(cases=listed(item)))

    path = f"{SCHEMA}.properties[spec].properties[cases].items.x-kubernetes-validations[0].rule"
    assert refusals(await client.call("POST", CRDS, json=define(20))) == [
        f"{path}: Forbidden: estimated rule cost exceeds budget by factor of 1.048576x {ADVICE}"
    ]
    await client.create(CRDS, define(10))
