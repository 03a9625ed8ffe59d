from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster import quantities
from kopf_cluster.cel import expressions
from kopf_cluster.cel.expressions import CompilationError, EvaluationError, compile_expression
from kopf_cluster.cel.rules import compile_rules, validate, validate_rules
from kopf_cluster.cel.values import ABSENT, escape

pytest.importorskip("cel_expr_python")

INT: dict[str, Any] = {"type": "integer"}
TEXT: dict[str, Any] = {"type": "string"}
ANY: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


def rules(*texts: str, **extra: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text, **extra} for text in texts]}


def spec_of(properties: Any, **extra: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties, **extra}}}


def broken(schema: Any, new: Any, old: Any = ABSENT) -> list[str]:
    assert not list(map(str, validate_rules(schema, "schema")))
    node = compile_rules(schema)
    assert node is not None
    return list(map(str, validate(node, new, old)))


def evaluate(text: str, **variables: Any) -> Any:
    return compile_expression(text, dict.fromkeys(variables, "dyn")).evaluate(variables)


# ------------------------------------------------------------------------------------------ objects

REPLICAS = spec_of({"min": INT, "max": INT}, **rules("self.min <= self.max"))
LARGEST = spec_of({"min": INT, "max": INT}, **rules("self.min <= self.max", fieldPath=".max", message="small"))
NEVER = spec_of({"a": {"type": "object", "additionalProperties": INT}}, **rules("false", fieldPath=".a['x.y']"))
POSITIVE = {**INT, **rules("self > 0")}
DEEP = spec_of(
    {"list": {"type": "array", "items": POSITIVE}, "map": {"type": "object", "additionalProperties": POSITIVE}}
)
WHOLE = {
    "type": "object",
    "properties": {"spec": {"type": "object"}},
    **rules("self.metadata.name.startsWith('x')", "self.kind == 'Kex' && self.apiVersion == 'obs.dev/v1'"),
}
KEX = {"apiVersion": "obs.dev/v1", "kind": "Kex", "metadata": {"name": "x1", "labels": {"a": "b"}}}
UNUSUAL = spec_of({"a-b": INT, "if": INT}, **rules("self.a__dash__b == self.__if__"))
NUMBERS = spec_of({"f": {"type": "number"}, "i": INT}, **rules("self.f * 2.0 == 4.0 && self.i + 1 == 3"))
NULLABLE = spec_of({"a": {**INT, "nullable": True}}, **rules("!has(self.a)"))
DECLARED = spec_of({"a": INT}, **ANY, **rules("self == {'a': 1}"))
IMMUTABLE = spec_of({"n": {**INT, **rules("self == oldSelf", message="is immutable")}})
GROWING = spec_of(
    {"n": {**INT, **rules("oldSelf.hasValue() ? self > oldSelf.value() : self == 0", optionalOldSelf=True)}}
)
FROM_FIVE = spec_of({"n": INT}, **rules("self.n >= oldSelf.?n.orValue(5)", optionalOldSelf=True))


@pytest.mark.parametrize(
    ("schema", "new", "old", "expected"),
    [
        (REPLICAS, {"spec": {"min": 1, "max": 2}}, ABSENT, []),
        (
            REPLICAS,
            {"spec": {"min": 3, "max": 2}},
            ABSENT,
            ["spec: Invalid value: failed rule: self.min <= self.max"],
        ),
        # It cannot be evaluated.
        (
            REPLICAS,
            {"spec": {"min": 1}},
            ABSENT,
            ['spec: Invalid value: "object": no such key: max evaluating rule: self.min <= self.max'],
        ),
        # What was broken before and is unchanged, is left in peace.
        (REPLICAS, {"spec": {"min": 3, "max": 2}}, {"spec": {"min": 3, "max": 2}}, []),
        (REPLICAS, {"spec": {"min": 4, "max": 2}}, {"spec": {"min": 3, "max": 2}}, [mock.ANY]),
        (LARGEST, {"spec": {"min": 3, "max": 2}}, ABSENT, ["spec.max: Invalid value: small"]),
        (NEVER, {"spec": {}}, ABSENT, ["spec.a[x.y]: Invalid value: failed rule: false"]),
        (
            DEEP,
            {"spec": {"list": [1, 0], "map": {"a": 0, "b": 1}}},
            ABSENT,
            [
                "spec.list[1]: Invalid value: 0: failed rule: self > 0",
                "spec.map[a]: Invalid value: 0: failed rule: self > 0",
            ],
        ),
        (DEEP, {"spec": None}, ABSENT, []),
        (WHOLE, KEX, ABSENT, []),
        (
            WHOLE,
            {**KEX, "metadata": {"name": "y"}},
            ABSENT,
            ["<nil>: Invalid value: failed rule: self.metadata.name.startsWith('x')"],
        ),
        (UNUSUAL, {"spec": {"a-b": 1, "if": 1}}, ABSENT, []),
        (UNUSUAL, {"spec": {"a-b": 1, "if": 2}}, ABSENT, [mock.ANY]),
        (NUMBERS, {"spec": {"f": 2, "i": 2.0}}, ABSENT, []),
        (NULLABLE, {"spec": {"a": None}}, ABSENT, []),
        (DECLARED, {"spec": {"a": 1, "unknown": 2}}, ABSENT, []),
        # Transition rules need an old value, unless it is optional.
        (IMMUTABLE, {"spec": {"n": 1}}, ABSENT, []),
        (IMMUTABLE, {"spec": {"n": 1}}, {"spec": {}}, []),
        (IMMUTABLE, {"spec": {"n": 1}}, {"spec": {"n": None}}, []),
        (IMMUTABLE, {"spec": {"n": 1}}, {"spec": {"n": 1}}, []),
        (IMMUTABLE, {"spec": {"n": 2}}, {"spec": {"n": 1}}, ["spec.n: Invalid value: 2: is immutable"]),
        (GROWING, {"spec": {"n": 0}}, ABSENT, []),
        (GROWING, {"spec": {"n": 1}}, ABSENT, [mock.ANY]),
        (GROWING, {"spec": {"n": 2}}, {"spec": {"n": 1}}, []),
        (GROWING, {"spec": {"n": 1}}, {"spec": {"n": 1}}, [mock.ANY]),
        (FROM_FIVE, {"spec": {"n": 4}}, ABSENT, [mock.ANY]),
        (FROM_FIVE, {"spec": {"n": 4}}, {"spec": {"n": 3}}, []),
    ],
)
def test_broken_rules(schema: Any, new: Any, old: Any, expected: list[str]) -> None:
    assert broken(schema, new, old) == expected


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"message": " too much "}, "spec.n: Invalid value: 5: too much"),
        ({"messageExpression": "'not ' + string(self)"}, "spec.n: Invalid value: 5: not 5"),
        ({"messageExpression": "'a\\nb'", "message": "fixed"}, "spec.n: Invalid value: 5: fixed"),
        ({"messageExpression": "''"}, "spec.n: Invalid value: 5: failed rule: self < 5"),
        ({"messageExpression": "string(self / 0)"}, "spec.n: Invalid value: 5: failed rule: self < 5"),
        ({"reason": "FieldValueForbidden", "message": "no"}, "spec.n: Forbidden: no"),
        ({"reason": "FieldValueRequired", "message": "no"}, "spec.n: Required value: no"),
        ({"reason": "FieldValueDuplicate", "message": "no"}, "spec.n: Duplicate value: 5"),
        ({"reason": "FieldValueInvalid", "message": "no"}, "spec.n: Invalid value: 5: no"),
    ],
)
def test_messages_and_reasons(extra: Any, expected: str) -> None:
    assert broken(spec_of({"n": {**INT, **rules("self < 5", **extra)}}), {"spec": {"n": 5}}) == [expected]


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a", "a"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
        ("1a", None),
        ("ä", None),
        ("int", "int"),
    ],
)
def test_names_of_fields_in_expressions(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped


# ------------------------------------------------------------------------------------------ changes


def test_transition_rules_in_keyed_lists_and_in_maps() -> None:
    item = {"type": "object", "properties": {"name": TEXT, "n": {**INT, **rules("self >= oldSelf")}}}
    schema = spec_of(
        {
            "list": {
                "type": "array",
                "items": item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "map": {"type": "object", "additionalProperties": {**INT, **rules("self >= oldSelf")}},
        }
    )
    old = {"spec": {"list": [{"name": "a", "n": 1}, {"name": "b", "n": 5}], "map": {"x": 5}}}
    new = {
        "spec": {"list": [{"name": "b", "n": 4}, {"name": "a", "n": 2}, {"name": "c", "n": 0}], "map": {"x": 4, "y": 0}}
    }
    assert [text.split(":")[0] for text in broken(schema, new, old)] == ["spec.list[0].n", "spec.map[x]"]


def test_the_order_of_sets_and_of_keyed_lists_means_nothing() -> None:
    schema = spec_of(
        {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
            "list": {"type": "array", "items": TEXT},
            "keyed": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": TEXT, "v": INT}},
            },
        },
        **rules("self == oldSelf"),
    )
    old = {"spec": {"set": ["a", "b"], "keyed": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "list": ["a", "b"]}}
    new = {"spec": {"set": ["b", "a"], "keyed": [{"k": "b", "v": 2}, {"k": "a", "v": 1}], "list": ["a", "b"]}}
    assert broken(schema, new, old) == []
    assert broken(schema, {"spec": {**new["spec"], "list": ["b", "a"]}}, old) != []
    assert broken(schema, {"spec": {**new["spec"], "set": ["b"]}}, old) != []


# ------------------------------------------------------------------------------------------ definitions


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("self.nope == 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"),
        ("has(self.a.b)", "ERROR: <input>:1:4: type 'int' does not support field selection"),
        ("self.o.x.y == 1", "ERROR: <input>:1:9: type 'string' does not support field selection"),
        ("self.o.x.size() == 1 && self.o.y == 1", "undefined field 'y'"),
        ("self.free.x == 1", "undefined field 'x'"),
        ("nosuch(self.a)", "undeclared reference to 'nosuch'"),
        ("self.a.nosuch()", "undeclared reference to 'nosuch'"),
        ("self.a ==", "Syntax error"),
        ("1 + 'a' == 2", "found no matching overload for '_+_'"),
        ("1 + 1", "rule must evaluate to a bool"),
        ("unknown == 1", "undeclared reference to 'unknown'"),
        ("oldSelf.nope == 1", "undefined field 'nope'"),
        (
            "self.a == 'self.x' || (has(self.nope) && self.gone > 1)",
            (
                "ERROR: <input>:1:27: undefined field 'nope'\n | self.a == 'self.x' || (has(self.nope) && "
                "self.gone > 1)\n"
                " | ..........................^\nERROR: <input>:1:46: undefined field 'gone'\n"
            ),
        ),
    ],
)
def test_rules_that_cannot_be_compiled(rule: str, expected: str) -> None:
    schema = spec_of(
        {"a": INT, "free": {"type": "object", **ANY}, "o": {"type": "object", "properties": {"x": TEXT}}}, **rules(rule)
    )
    errors = list(validate_rules(schema, "schema"))
    [error] = errors
    assert error.field == "schema.properties[spec].x-kubernetes-validations[0].rule"
    assert error.text.startswith(f'Invalid value: "{rule}": ')
    assert "compilation failed: " in error.text
    assert expected in error.text
    with pytest.raises(CompilationError):
        compile_rules(schema)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"rule": ""}, "rule: Required value: rule is not specified"),
        ({"rule": "true", "message": " "}, 'message: Invalid value: " ": message must be non-empty if specified'),
        ({"rule": "true", "message": "a\nb"}, 'message: Invalid value: "a\\nb": message must not contain line breaks'),
        ({"rule": "true\n&& true"}, "message: Required value: message must be specified if rule contains line breaks"),
        (
            {"rule": "true", "reason": "X"},
            (
                'reason: Unsupported value: "X": supported values: "FieldValueInvalid", '
                '"FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"'
            ),
        ),
        ({"rule": "true", "fieldPath": "x y"}, 'fieldPath: Invalid value: "x y": must be a valid path'),
        (
            {"rule": "true", "optionalOldSelf": True},
            "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ],
)
def test_wrong_rules(rule: Any, expected: str) -> None:
    schema = {"type": "object", "x-kubernetes-validations": [rule]}
    assert [str(error) for error in validate_rules(schema, "s")] == [f"s.x-kubernetes-validations[0].{expected}"]


def test_wrong_message_expressions() -> None:
    schema = spec_of({"n": {**INT, **rules("self > 1", messageExpression="self + 1")}})
    [error] = validate_rules(schema, "s")
    assert error.field.endswith("x-kubernetes-validations[0].messageExpression")
    assert "messageExpression must evaluate to a string" in error.text


@pytest.mark.parametrize(
    "place",
    [
        {"type": "array", "items": {**INT, **rules("self == oldSelf")}},
        {"type": "array", "x-kubernetes-list-type": "set", "items": {**INT, **rules("self == oldSelf")}},
        {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": {**INT, **rules("self == oldSelf")}}},
    ],
)
def test_transition_rules_where_old_values_cannot_be_found(place: Any) -> None:
    [error] = validate_rules(spec_of({"x": place}), "s")
    assert "oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec]" in error.text


def test_words_in_strings_are_not_code() -> None:
    rule = "self != 'oldSelf.x' && self != \"self.nope\"  // self.nope"
    schema = spec_of({"a": {"type": "array", "items": {**TEXT, **rules(rule)}}})
    assert list(validate_rules(schema, "s")) == []
    assert broken(schema, {"spec": {"a": ["x"]}}) == []


def test_schemas_with_no_rules_cost_nothing() -> None:
    assert compile_rules(spec_of({"a": INT})) is None


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    expressions._environment.cache_clear()
    try:
        [error] = validate_rules({"type": "object", **rules("1 == 1 && 12345 != 0")}, "s")
        assert "not supported by this local cluster" in error.text
        assert "install kopf[dev]" in error.text
    finally:
        expressions._environment.cache_clear()


# ------------------------------------------------------------------------------------------ the language


@pytest.mark.parametrize(
    "text",
    [
        "'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b') && 'abc'.matches('^a.c$')",
        "x.all(i, i > 0) && x.exists(i, i == 2) && x.exists_one(i, i == 2) && x.map(i, i * 2) == [6, 2, 4]",
        "x.filter(i, i > 1) == [3, 2] && size(x) == 3 && x.size() == 3 && 3 in x",
        "[1, 2, 2].isSorted() && !x.isSorted() && ['a', 'b'].isSorted() && [].isSorted()",
        "x.sum() == 6 && x.min() == 1 && x.max() == 3 && [0.5, 1.5].sum() == 2.0",
        "sets.contains([1, 2], [2]) && !sets.contains([1], [2]) && sets.equivalent([1, 2, 1], [2, 1])",
        "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2])",
        "'abc 123 45'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
        "'1 23 45'.findAll('[0-9]+') == ['1', '23', '45'] && '1 23 45'.findAll('[0-9]+', 2) == ['1', '23']",
        "'a1'.find('^[a-z]\\\\d$') == 'a1'",
        "'%s is %d'.format(['x', 5]) == 'x is 5' && 'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b'",
        "'AbC'.lowerAscii() == 'abc' && 'abc'.substring(1) == 'bc' && 'aba'.lastIndexOf('a') == 2 && ' x "
        "'.trim() == 'x'",
        "quantity('1Gi').isGreaterThan(quantity('1000Mi')) && quantity('1Ki') == quantity('1024')",
        "quantity('100m').isLessThan(quantity('0.2')) && quantity('1k').compareTo(quantity('1000')) == 0",
        "quantity('1').add(quantity('1500m')).asApproximateFloat() == 2.5 && quantity('5').sub(2).asInteger() == 3",
        "isQuantity('1.5Gi') && !isQuantity('1.5XX') && quantity('-1').sign() == -1 && !quantity('1500m').isInteger()",
        "isURL('https://example.com:80/a?b=c') && !isURL('../a') && url('https://u@h:80/x y').getHost() == 'h:80'",
        "url('https://[::1]:80/p').getHostname() == '::1' && url('https://h:80/p').getPort() == '80'",
        "url('https://h/p?k=1&k=2').getQuery()['k'] == ['1', '2'] && url('https://h/a b').getEscapedPath() == '/a%20b'",
        "url('http://h').getScheme() == 'http' && url('http://h').getPort() == ''",
        "isIP('10.0.0.1') && !isIP('10.0.0.256') && ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()",
        "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "!cidr('10.0.0.0/8').containsIP(ip('11.0.0.1')) && cidr('10.0.0.0/8').containsIP(ip('10.0.0.1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.0.0/16').prefixLength() == 16",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && !isCIDR('10.0.0.0')",
        "duration('1h') > duration('59m') && timestamp('2026-01-02T00:00:00Z').getFullYear() == 2026",
        "optional.of(1).hasValue() && y.?a.orValue(0) == 1 && y.?b.orValue(0) == 0 && !has(y.b)",
        "cel.bind(z, 2, z + z) == 4 && math.greatest(1, 2) == 2 && base64.encode(b'hi') == 'aGk='",
        "y.nope == 1 || true",
        "type(1) == int && string(5) == '5' && int('5') == 5",
    ],
)
def test_the_language_with_the_functions_of_kubernetes(text: str) -> None:
    assert evaluate(text, x=[3, 1, 2], y={"a": 1}) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x.nope", "no such key: nope"),
        ("x.a / 0", "division by zero"),
        ("x.a + 'b'", "no such overload"),
        ("x.l[5]", "index"),
        ("[].min()", "min called on empty list"),
        ("quantity('x')", "quantities must match"),
        ("'a'.find('(?=a)')", "not supported by the local cluster"),
        ("'a'.find('[[:alpha:]]')", "not supported by the local cluster"),
        ("'a'.matches('(')", "missing )"),
        ("ip('x')", "does not appear to be an IPv4 or IPv6 address"),
        ("quantity('1500m').asInteger()", "cannot convert value to integer"),
        ("{'a': 'b'}.isGreaterThan(quantity('1'))", "no such overload"),
    ],
)
def test_what_has_no_value(text: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=f"(?i){message.replace('(', '.').replace(')', '.')}"):
        evaluate(text, x={"a": 1, "l": [1]})


@pytest.mark.parametrize(
    "text",
    [
        "[1].indexOf(1) == 0",
        "[1, 2].all(i, v, v > i)",
        "x.transformList(i, v, v)",
        "semver('1.0.0').major() == 1",
        "authorizer.group('').resource('pods').check('get').allowed()",
        "format.named('dns1123Label').hasValue()",
    ],
)
def test_what_is_not_supported_is_refused(text: str) -> None:
    with pytest.raises(CompilationError, match=r"^compilation failed: ERROR: <input>:1:"):
        compile_expression(text, {"x": "dyn"})


def test_expressions_are_compiled_once() -> None:
    assert compile_expression("x == 1", {"x": "dyn"}) is compile_expression("x == 1", {"x": "dyn"})


def test_expressions_with_variables_of_admission() -> None:
    condition = compile_expression(
        "request.operation == 'CREATE' && object.metadata.name != 'x' && oldObject == null",
        {"request": "dyn", "object": "dyn", "oldObject": "dyn"},
    )
    assert condition.result_type == "BOOL"
    variables = {"request": {"operation": "CREATE"}, "object": {"metadata": {"name": "y"}}, "oldObject": None}
    assert condition.evaluate(variables) is True


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.sampled_from(["", "m", "k", "Ki", "Mi", "G"]))
def test_law_quantities_are_ordered_as_numbers(one: int, other: int, suffix: str) -> None:
    left, right = f"{one}{suffix}", f"{other}{suffix}"
    assert (quantities.amount(left) < quantities.amount(right)) == (one < other)
    assert quantities.amount(left) * -1 == quantities.amount(f"{-one}{suffix}")
    assert evaluate("quantity(a).compareTo(quantity(b))", a=left, b=right) == (one > other) - (one < other)


@given(st.integers(0, 5), st.integers(0, 5))
def test_law_rules_agree_with_python(low: int, high: int) -> None:
    assert (broken(REPLICAS, {"spec": {"min": low, "max": high}}) == []) == (low <= high)
