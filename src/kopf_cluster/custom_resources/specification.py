"""
The shape of custom resource definitions: the types of all fields that this server looks at.

It serves to refuse, in one place, what is of a wrong type, so that others can rely on the types.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ValidationRule(msgspec.Struct):
    """One of ``x-kubernetes-validations``."""

    rule: str = ""
    message: str | None = None
    messageExpression: str | None = None
    reason: str | None = None
    fieldPath: str | None = None
    optionalOldSelf: bool | None = None


class SchemaProps(msgspec.Struct):
    """A schema: `JSONSchemaProps` of ``apiextensions.k8s.io/v1``."""

    type: str | None = None
    format: str | None = None
    title: str | None = None
    description: str | None = None
    nullable: bool | None = None
    properties: dict[str, SchemaProps] | None = None
    additionalProperties: SchemaProps | bool | None = None
    items: SchemaProps | None = None
    required: list[str] | None = None
    enum: list[Any] | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusiveMinimum: bool | None = None
    exclusiveMaximum: bool | None = None
    multipleOf: float | None = None
    minLength: int | None = None
    maxLength: int | None = None
    minItems: int | None = None
    maxItems: int | None = None
    uniqueItems: bool | None = None
    minProperties: int | None = None
    maxProperties: int | None = None
    allOf: list[SchemaProps] | None = None
    anyOf: list[SchemaProps] | None = None
    oneOf: list[SchemaProps] | None = None
    not_: SchemaProps | None = msgspec.field(default=None, name="not")
    preserve: bool | None = msgspec.field(default=None, name="x-kubernetes-preserve-unknown-fields")
    int_or_string: bool | None = msgspec.field(default=None, name="x-kubernetes-int-or-string")
    embedded: bool | None = msgspec.field(default=None, name="x-kubernetes-embedded-resource")
    list_type: str | None = msgspec.field(default=None, name="x-kubernetes-list-type")
    list_keys: list[str] | None = msgspec.field(default=None, name="x-kubernetes-list-map-keys")
    rules: list[ValidationRule] | None = msgspec.field(default=None, name="x-kubernetes-validations")


class Names(msgspec.Struct):
    plural: str = ""
    kind: str = ""
    singular: str = ""
    listKind: str = ""
    shortNames: list[str] | None = None
    categories: list[str] | None = None


class PrinterColumn(msgspec.Struct):
    name: str = ""
    type: str = ""
    jsonPath: str = ""
    format: str = ""
    description: str = ""
    priority: int = 0


class SelectableField(msgspec.Struct):
    jsonPath: str = ""


class VersionSchema(msgspec.Struct):
    openAPIV3Schema: SchemaProps | None = None


class Version(msgspec.Struct):
    name: str = ""
    served: bool = False
    storage: bool = False
    deprecated: bool = False
    deprecationWarning: str | None = None
    schema: VersionSchema | None = None
    subresources: dict[str, dict[str, Any]] | None = None
    additionalPrinterColumns: list[PrinterColumn] | None = None
    selectableFields: list[SelectableField] | None = None


class ConversionWebhook(msgspec.Struct):
    clientConfig: dict[str, Any] | None = None
    conversionReviewVersions: list[str] | None = None


class Conversion(msgspec.Struct):
    strategy: str = ""
    webhook: ConversionWebhook | None = None


class Specification(msgspec.Struct):
    """The `spec` of a definition."""

    group: str = ""
    scope: str = ""
    names: Names = msgspec.field(default_factory=Names)
    versions: list[Version] = msgspec.field(default_factory=list)
    conversion: Conversion | None = None


class Status(msgspec.Struct):
    """The `status` of a definition, of which only this is looked at in what clients write."""

    storedVersions: list[str] | None = None
