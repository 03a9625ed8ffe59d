"""Random objects that fit a schema (OpenAPI v3 of custom resources), with a preference for values at its edges."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kopf._testing.exploring.walks import list_values

Schema = Mapping[str, Any]

_FORMATS: Mapping[str, str] = {
    "date-time": "2030-01-02T03:04:05Z",
    "date": "2030-01-02",
    "duration": "1h30m",
    "byte": "YWJj",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "10.1.2.3",
    "cidr": "10.1.0.0/16",
    "uri": "https://example.com/",
    "email": "me@example.com",
    "hostname": "example.com",
}
_LETTERS = "abcxyzABC0189-_ é\n"
_ANYTHING: tuple[Any, ...] = ({"any": ["thing", 1, None]}, "text", 1, [])


class RandomValues:
    """
    Makes values by their schemas. The same seed makes the same values.

    What schemas say by patterns, rules, and combinations is not known here: some values do not fit.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def make(self, schema: Schema) -> Any:
        """Make a value."""
        if schema.get("nullable") and self._random.random() < 0.1:
            return None
        match schema.get("type"):
            case "object":
                return self._make_object(schema)
            case "array":
                least, most = schema.get("minItems", 0), schema.get("maxItems", schema.get("minItems", 0) + 3)
                return [
                    self.make(schema.get("items", {})) for _ in range(self._random.randint(least, min(most, least + 3)))
                ]
        values = [*list_values(schema)]
        if "enum" not in schema:
            values += self._make_usual(schema)
        return self._random.choice(values or _ANYTHING)

    def _make_object(self, schema: Schema) -> dict[str, Any]:
        required = schema.get("required", ())
        made = {
            name: self.make(field)
            for name, field in schema.get("properties", {}).items()
            if name in required or self._random.random() < 0.7
        }
        more = schema.get("additionalProperties")
        if more or schema.get("x-kubernetes-preserve-unknown-fields"):
            field = more if isinstance(more, Mapping) else {}
            made |= {
                key: self.make(field) for key in self._random.sample(("a", "b.c/d", "e-1"), self._random.randint(0, 3))
            }
        return made

    def _make_usual(self, schema: Schema) -> list[Any]:
        match schema.get("type"):
            case "integer" | "number" as kind:
                least, most = schema.get("minimum", -100), schema.get("maximum", 100)
                value = self._random.uniform(min(least, most), max(least, most))
                return [round(value) if kind == "integer" else round(value, 3)] * 2
            case "string":
                least = schema.get("minLength", 0)
                length = self._random.randint(least, max(least, min(schema.get("maxLength", least + 10), least + 10)))
                text = "".join(self._random.choice(_LETTERS) for _ in range(length))
                return [_FORMATS.get(schema.get("format", ""), text), schema.get("default", text)]
        return []
