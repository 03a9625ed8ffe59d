"""
The tables of messages are right: by the descriptors of protoc, and by the definitions of OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import descriptor_pb2

from kopf_cluster.builtin_kinds import read_kinds
from kopf_cluster.kinds import structures
from kopf_cluster.kinds.structures import Structure
from kopf_cluster.protobuf.messages import Row, find_message, read_rows
from tests.cluster.kinds.strategies import walk
from tests.cluster.protobuf.samples import list_messages

from .witness import name_of, read_files

SCALARS = {1: "double", 3: "int64", 5: "int32", 8: "bool", 9: "string", 12: "bytes"}
LISTS = ("ExtraValue", "Verbs")  # messages that are lists in JSON
NOT_NULLABLE = b"\xc8\xde\x1f\x00"  # the option of the field: ``(gogoproto.nullable) = false``
GONE = {"io.k8s.api.resource.v1alpha3.DeviceTaintSelector": {"deviceClassName", "selectors"}}  # since 1.35
RENAMED = {"apiGroup": "aPIGroup", "uid": "uID", "webhooks": "Webhooks", "name": "Name", "expression": "Expression"}


def describe(field: descriptor_pb2.FieldDescriptorProto, message: descriptor_pb2.DescriptorProto) -> tuple[str, str]:
    """Tell the type and the cardinality of a field as the tables do."""
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    entry = entries.get(field.type_name.rpartition(".")[2])
    kind = SCALARS.get(field.type, f"io.k8s.{field.type_name.removeprefix('.k8s.io.')}")
    if entry is not None:
        value = entry.field[1]
        kind = SCALARS.get(value.type, f"io.k8s.{value.type_name.removeprefix('.k8s.io.')}")
    kind = "strings" if kind.endswith(LISTS) else kind
    if entry is not None or field.label == field.LABEL_REPEATED:
        return kind, "map" if entry is not None else "list"
    is_set = kind in ("bytes", "strings") or NOT_NULLABLE in field.options.SerializeToString()
    return kind, "one" if is_set else "optional"


def test_the_fields_are_those_of_the_descriptors() -> None:
    known, checked = set(list_messages()), 0
    for file in read_files():
        for message in file.message_type:
            name = name_of(file, message)
            rows = {row.number: row for row in read_rows(name)} if name in known else {}
            for field in message.field if rows else ():
                if field.name in GONE.get(name, ()):
                    continue
                row = rows[field.number]
                assert (row.type, row.cardinality) == describe(field, message), (name, row)
                assert row.name in ("", field.name) or RENAMED[row.name] == field.name, (name, row)
                checked += 1
    assert checked > 2400


def expand(definition: str) -> Iterator[Row]:
    """Give the fields of a message as they are in JSON."""
    for row in read_rows(definition):
        if row.name:
            yield row
        else:
            yield from expand(row.type)


def test_the_fields_are_those_of_the_definitions() -> None:
    """So, whatever the local cluster stores of built-in kinds, it can encode."""
    known = set(list_messages())
    checked: set[str] = set()
    for kind in read_kinds():
        for structure in walk(structures.of_definition(kind.definition)):
            if structure.definition in known and structure.definition not in checked:
                checked.add(structure.definition)
                compare(structure)
    assert len(checked) > 480


def compare(structure: Structure) -> None:
    rows = {row.name for row in expand(structure.definition)}
    fields = set(structure.fields) - ({"apiVersion", "kind"} - rows)  # in objects, these are in the envelope
    assert rows == fields, structure.definition


def test_every_kind_has_messages_of_its_own_and_of_its_lists() -> None:
    for kind in read_kinds():
        assert find_message(kind.api_version, kind.kind) is not None, kind
        if "list" in kind.verbs:
            assert find_message(kind.api_version, f"{kind.kind}List") is not None, kind
        for subresource in kind.listed_subresources.values():
            if not subresource.kind.endswith("Options"):  # those are not served
                api_version = f"{subresource.group}/{subresource.version}".removeprefix("/")
                assert find_message(api_version, subresource.kind) is not None, subresource


def test_what_belongs_to_no_group_is_in_all() -> None:
    assert find_message("apps/v1", "DeleteOptions") is find_message("v1", "DeleteOptions") is not None
    assert find_message("meta.k8s.io/v1", "PartialObjectMetadataList") is not None
    assert find_message("meta.k8s.io/v1", "Table") is None
    assert find_message("example.com/v1", "Kex") is None
