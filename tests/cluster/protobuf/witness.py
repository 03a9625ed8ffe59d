"""
Kubernetes' messages as protoc has made their descriptors, in the hands of Google's library.

See ``tools/extract_descriptors.py``: it shares nothing with what the local cluster encodes and decodes by.
"""

from __future__ import annotations

import functools
import gzip
import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DATA = pathlib.Path(__file__).parent / "data/descriptors-1.34.binpb.gz"
MAGIC = b"k8s\0"


@functools.cache
def read_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """Give the files with messages, without what tells the generator for Go how its code has to look."""
    files = list(descriptor_pb2.FileDescriptorSet.FromString(gzip.decompress(DATA.read_bytes())).file)
    for file in files:
        needed = [name for name in file.dependency if name.startswith("k8s.io/")]
        file.ClearField("dependency")
        file.dependency.extend(needed)
    return files


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pending = {file.name: file for file in read_files()}

    def add(name: str) -> None:
        file = pending.pop(name, None)
        if file is not None:
            for dependency in file.dependency:
                add(dependency)
            pool.Add(file)

    for name in list(pending):
        add(name)
    return pool


def name_of(file: descriptor_pb2.FileDescriptorProto, message: descriptor_pb2.DescriptorProto) -> str:
    """Name it as in OpenAPI."""
    return f"io.k8s.{file.package.removeprefix('k8s.io.')}.{message.name}"


@functools.cache
def find_class(definition: str) -> Any:
    """Give the class of a message by its name in OpenAPI; or none if it has no descriptor."""
    try:
        found = _pool().FindMessageTypeByName(f"k8s.io.{definition.removeprefix('io.k8s.')}")
    except KeyError:
        return None
    return message_factory.GetMessageClass(found)


def wrap(api_version: str, kind: str, message: Any) -> bytes:
    """Put a message into the envelope of objects."""
    envelope = find_class("io.k8s.apimachinery.pkg.runtime.Unknown")()
    envelope.typeMeta.apiVersion, envelope.typeMeta.kind = api_version, kind
    envelope.raw = message.SerializeToString(deterministic=True)
    envelope.contentEncoding = envelope.contentType = ""
    return MAGIC + bytes(envelope.SerializeToString(deterministic=True))


def unwrap(data: bytes) -> tuple[str, str, bytes]:
    """Take the version, the kind, and the message out of the envelope."""
    assert data.startswith(MAGIC), data[:40]
    envelope = find_class("io.k8s.apimachinery.pkg.runtime.Unknown").FromString(data[len(MAGIC) :])
    return envelope.typeMeta.apiVersion, envelope.typeMeta.kind, envelope.raw


def read_events(data: bytes) -> list[tuple[str, bytes]]:
    """Split a stream of events: their types, and the objects in their envelopes."""
    events = []
    while data:
        size = int.from_bytes(data[:4])
        event = find_class("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent").FromString(data[4 : 4 + size])
        events.append((event.type, event.object.raw))
        data = data[4 + size :]
    return events
