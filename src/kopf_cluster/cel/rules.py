"""
Validation rules of custom resources: ``x-kubernetes-validations``, compiled once for a version of a definition.

The rules and the wording follow "Validation rules" in "Extend the Kubernetes API with
CustomResourceDefinitions". An unchanged value is not held against rules that it broke before ("Validation
ratcheting"). A rule that cannot be evaluated here is refused with the definition, not with its objects.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf_cluster import statuses
from kopf_cluster.cel import values as cel_values
from kopf_cluster.cel.expressions import CompilationError, EvaluationError, Expression, compile_expression
from kopf_cluster.cel.values import ABSENT, Schema, convert, is_transition
from kopf_cluster.codec import same
from kopf_cluster.statuses import FieldError

_REASONS: Final = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")
_NOWHERE: Final = "<nil>"  # the object as a whole
_MAX_MESSAGE: Final = 5 * 1024
_FIELD_PATH: Final = re.compile(r"(?:\.[A-Za-z_][\w-]*|\['[^']+'\])+")


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule."""

    text: str
    program: Expression
    message: str
    message_program: Expression | None
    reason: str
    field_path: str
    transition: bool
    optional: bool


@dataclasses.dataclass(frozen=True, slots=True)
class RuleNode:
    """The place of a schema that has rules, or has them inside."""

    schema: Schema
    root: bool
    rules: tuple[Rule, ...]
    fields: Mapping[str, RuleNode]
    values: RuleNode | None
    items: RuleNode | None
    transitional: bool
    """Whether any rule here or inside compares to the old value: such rules are checked even if nothing changes."""

    def __bool__(self) -> bool:
        return bool(self.rules or self.fields or self.values or self.items)


def compile_rules(schema: Schema, *, root: bool = True) -> RuleNode | None:
    """Compile the rules of a valid schema (see `validate_rules`); return none if there are no rules at all.

    Parameters:
        schema: The schema of objects, or of a value inside.
        root: Whether it is the schema of objects.
    """
    raw_values, raw_items = schema.get("additionalProperties"), schema.get("items")
    rules = tuple(_compile_rule(raw, schema, root=root) for raw in schema.get("x-kubernetes-validations") or ())
    fields = {
        name: node
        for name, sub in (schema.get("properties") or {}).items()
        if (node := compile_rules(sub, root=False)) is not None
    }
    values = compile_rules(raw_values, root=False) if isinstance(raw_values, Mapping) else None
    items = compile_rules(raw_items, root=False) if isinstance(raw_items, Mapping) else None
    inside = [node for node in (*fields.values(), values, items) if node is not None]
    transitional = any(rule.transition for rule in rules) or any(node.transitional for node in inside)
    return RuleNode(schema, root, rules, fields, values, items, transitional) or None


def _compile_rule(raw: Mapping[str, Any], schema: Schema, *, root: bool) -> Rule:
    text, optional = raw["rule"], bool(raw.get("optionalOldSelf"))
    expression = raw.get("messageExpression")
    return Rule(
        text=text.strip(),
        program=_compile_text(text, schema, root=root, optional=optional, result="BOOL"),
        message=(raw.get("message") or "").strip(),
        message_program=_compile_text(expression, schema, root=root, optional=optional, result="STRING")
        if expression
        else None,
        reason=raw.get("reason") or "FieldValueInvalid",
        field_path=raw.get("fieldPath") or "",
        transition=is_transition(text),
        optional=optional,
    )


def _compile_text(text: str, schema: Schema, *, root: bool, optional: bool, result: str) -> Expression:
    undefined = cel_values.find_undefined(text, schema, root=root, optional=optional)
    if undefined is not None:
        raise CompilationError(f"compilation failed: {undefined}")
    kind = cel_values.type_of(schema)
    variables = {"self": kind}
    source = text
    if optional:
        # The library takes no optional values from outside: they are made inside of the expression.
        variables |= {"oldSelf__": kind, "hasOldSelf__": "bool"}
        source = f"cel.bind(oldSelf, hasOldSelf__ ? optional.of(oldSelf__) : optional.none(), {text}\n)"
    elif is_transition(text):
        variables["oldSelf"] = kind
    compiled = compile_expression(source, variables)
    if compiled.result_type not in (result, "DYN"):
        what = "rule must evaluate to a bool" if result == "BOOL" else "messageExpression must evaluate to a string"
        raise CompilationError(f"compilation failed: {what}")
    return compiled


# ------------------------------------------------------------------------------------------ definitions


def validate_rules(schema: Schema, path: str, *, root: bool = True, correlatable: bool = True) -> Iterator[FieldError]:
    """Yield the errors in the rules of a schema.

    Parameters:
        schema: The schema of objects, or of a value inside.
        path: The path of the schema in the definition.
        root: Whether it is the schema of objects.
        correlatable: Whether the old value of each new value is known, so that rules can use it.
    """
    for index, raw in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield from _validate_rule(raw, schema, f"{path}.x-kubernetes-validations[{index}]", root, correlatable)
    inside = correlatable and schema.get("x-kubernetes-map-type") != "atomic"
    for name, sub in (schema.get("properties") or {}).items():
        yield from validate_rules(sub, f"{path}.properties[{name}]", root=False, correlatable=inside)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from validate_rules(
            schema["additionalProperties"], f"{path}.additionalProperties", root=False, correlatable=inside
        )
    if isinstance(schema.get("items"), Mapping):
        keyed = correlatable and schema.get("x-kubernetes-list-type") == "map"
        yield from validate_rules(schema["items"], f"{path}.items", root=False, correlatable=keyed)
    for combination in ("allOf", "anyOf", "oneOf"):
        for index, sub in enumerate(schema.get(combination) or ()):
            if "x-kubernetes-validations" in sub:
                yield statuses.forbidden_value(
                    f"{path}.{combination}[{index}].x-kubernetes-validations", "must be empty to be structural"
                )


def _validate_rule(
    raw: Mapping[str, Any],
    schema: Schema,
    path: str,
    root: bool,
    correlatable: bool,
) -> Iterator[FieldError]:
    rule, optional = raw.get("rule") or "", bool(raw.get("optionalOldSelf"))
    if not rule.strip():
        yield statuses.required(f"{path}.rule", "rule is not specified")
        return
    if "message" in raw and not raw["message"].strip():
        yield statuses.invalid_value(f"{path}.message", raw["message"], "message must be non-empty if specified")
    elif "\n" in (raw.get("message") or "").strip():
        yield statuses.invalid_value(f"{path}.message", raw["message"], "message must not contain line breaks")
    if "\n" in rule.strip() and not raw.get("message"):
        yield statuses.required(f"{path}.message", "message must be specified if rule contains line breaks")
    if raw.get("reason") is not None and raw["reason"] not in _REASONS:
        yield statuses.unsupported_value(f"{path}.reason", raw["reason"], _REASONS)
    if raw.get("fieldPath") and not _FIELD_PATH.fullmatch(raw["fieldPath"]):
        yield statuses.invalid_value(f"{path}.fieldPath", raw["fieldPath"], "must be a valid path")
    if is_transition(rule) and not correlatable:
        yield statuses.invalid_value(
            f"{path}.rule",
            rule,
            "oldSelf cannot be used on the uncorrelatable portion of the schema "
            f"within {path.rpartition('.x-kubernetes-validations')[0]}",
        )
    if optional and not is_transition(rule):
        yield statuses.invalid_value(f"{path}.optionalOldSelf", True, "may not be set if oldSelf is not used in rule")
    for field, result in (("rule", "BOOL"), ("messageExpression", "STRING")):
        try:
            if raw.get(field):
                _compile_text(raw[field], schema, root=root, optional=optional, result=result)
        except CompilationError as error:
            yield statuses.invalid_value(f"{path}.{field}", raw[field], str(error))


# ------------------------------------------------------------------------------------------ objects


def validate(node: RuleNode, new: Any, old: Any = ABSENT, path: str = "") -> Iterator[FieldError]:
    """Yield the rules that the new value breaks. The old value is absent on creation, or if it is not known.

    What is unchanged is not held against it, except by the rules that compare to the old value: "Transition rules
    are never ratcheted". A null is no value to compare to.
    """
    if new is None:
        return
    old = ABSENT if old is None else old
    unchanged = new is old or (old is not ABSENT and bool(node.rules or node.items) and same(new, old))
    if node.rules:
        yield from _evaluate(node, new, old, unchanged, path)
    if isinstance(new, dict):
        atomic = node.schema.get("x-kubernetes-map-type") == "atomic" and not unchanged
        olds = new if unchanged else old if isinstance(old, dict) and not atomic else {}
        for name, value in new.items():
            if name in node.fields:
                place = f"{path}.{name}" if path else name
                yield from validate(node.fields[name], value, olds.get(name, ABSENT), place)
            elif node.values is not None:
                yield from validate(node.values, value, olds.get(name, ABSENT), f"{path}[{name}]")
    elif isinstance(new, list) and node.items is not None:
        items = new if unchanged else cel_values.counterparts(new, old, node.schema)
        for index, (value, known) in enumerate(zip(new, items, strict=True)):
            yield from validate(node.items, value, known, f"{path}[{index}]")


def _evaluate(node: RuleNode, new: Any, old: Any, unchanged: bool, path: str) -> Iterator[FieldError]:
    variables: dict[str, Any] = {"self": convert(new, node.schema, root=node.root)}
    if any(rule.transition for rule in node.rules):
        known = old is not ABSENT
        before = convert(cel_values.align(old, new, node.schema), node.schema, root=node.root) if known else None
        # Without an old value, something of the right type is there, which is never looked at.
        variables |= {"oldSelf": before, "oldSelf__": before if known else variables["self"], "hasOldSelf__": known}
    for rule in node.rules:
        if rule.transition and old is ABSENT and not rule.optional:
            continue
        if unchanged and not rule.transition:
            continue
        error = _check(rule, variables, node.schema, new, path)
        if error is not None:
            yield error


def _check(rule: Rule, variables: Mapping[str, Any], schema: Schema, value: Any, path: str) -> FieldError | None:
    try:
        passed = rule.program.evaluate(variables)
    except EvaluationError as error:
        return statuses.invalid_value(path or _NOWHERE, schema.get("type") or "", _explain(rule, str(error)))
    if passed is True:
        return None
    place, message = (path + _shown(rule.field_path)).lstrip(".") or _NOWHERE, _message(rule, variables)
    match rule.reason:
        case "FieldValueForbidden":
            return statuses.forbidden_value(place, message)
        case "FieldValueRequired":
            return statuses.required(place, message)
        case "FieldValueDuplicate":
            return FieldError(place, rule.reason, f"Duplicate value{_value(value)}")
    return FieldError(place, rule.reason, f"Invalid value{_value(value)}: {message}")


def _explain(rule: Rule, error: str) -> str:
    what = rule.message or rule.text
    if error.startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {what}"
        )
    return f"{error} evaluating rule: {what}"


def _value(value: Any) -> str:
    """Show a value in messages, unless it can be large."""
    return "" if isinstance(value, (dict, list)) else f": {statuses.quoted(value)}"


def _shown(field_path: str) -> str:
    return re.sub(r"\['([^']+)'\]", r"[\1]", field_path)


def _message(rule: Rule, variables: Mapping[str, Any]) -> str:
    """Return the message of a broken rule; one that cannot be evaluated, or is unfit, gives way to the fixed one."""
    if rule.message_program is not None:
        try:
            text = rule.message_program.evaluate(variables)
        except EvaluationError:
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text and len(text.encode()) <= _MAX_MESSAGE:
            return text.strip()
    return rule.message or f"failed rule: {rule.text}"
