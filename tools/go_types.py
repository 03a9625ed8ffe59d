"""
Read the types of structures from a program written in Go: their fields with types and tags.

Programs in Go carry the descriptions of their types for reflection, even when they are stripped. Those of Kubernetes'
API have everything in the tags of their fields that the encodings in JSON and protobuf are made by.

The layout is that of `internal/abi` of Go 1.26 ("type.go") on machines of 64 bits, little-endian, in ELF files.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import struct
from collections.abc import Iterator
from typing import Final

# The kinds of types, see `abi.Kind`; the higher bits are flags.
KINDS: Final = (
    "invalid",
    "bool",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uintptr",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "array",
    "chan",
    "func",
    "interface",
    "map",
    "pointer",
    "slice",
    "string",
    "struct",
    "unsafe.Pointer",
)
_KIND_MASK: Final = 31
_COMMON: Final = 48  # the size of what all types begin with
_HAS_PACKAGE, _EXTRA_STAR, _IS_NAMED = 1, 2, 4  # flags of types
_HAS_TAG, _IS_EMBEDDED = 2, 8  # flags of names


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a structure."""

    name: str
    type: Type
    tag: str
    embedded: bool


class Type:
    """A type in the program; what it refers to is read on demand, as types refer to each other in circles."""

    def __init__(self, program: Program, address: int) -> None:
        self._program = program
        self._address = address
        self._flags = program.unpack("B", address + 20)
        self.kind = KINDS[program.unpack("B", address + 23) & _KIND_MASK]

    @functools.cached_property
    def name(self) -> str:
        """The name with the last part of the package, e.g. ``v1.Pod``; or how the type is put together."""
        text = self._program.read_name(self._program.types + self._program.unpack("i", self._address + 40))[0]
        return text.removeprefix("*") if self._flags & _EXTRA_STAR else text

    @property
    def is_named(self) -> bool:
        return bool(self._flags & _IS_NAMED)

    @functools.cached_property
    def package(self) -> str:
        """The path of the package of a structure, e.g. ``k8s.io/api/core/v1``; empty if the type has no name."""
        if self.kind != "struct" or not self._flags & _HAS_PACKAGE:
            return ""
        offset = self._program.unpack("i", self._address + _COMMON + 32)
        return self._program.read_name(self._program.types + offset)[0]

    @property
    def key(self) -> Type:
        """The type of the keys of a map."""
        return self._refer(0)

    @property
    def element(self) -> Type:
        """What a pointer points to, or what is in a slice, an array, or a map."""
        return self._refer(8 if self.kind == "map" else 0)

    def _refer(self, offset: int) -> Type:
        return self._program.type_at(self._program.unpack("Q", self._address + _COMMON + offset))

    @functools.cached_property
    def fields(self) -> list[Field]:
        first, count = (self._program.unpack("Q", self._address + _COMMON + offset) for offset in (8, 16))
        return [self._read_field(first + 24 * index) for index in range(count)]

    def _read_field(self, address: int) -> Field:
        name_address, type_address = (self._program.unpack("Q", address + offset) for offset in (0, 8))
        name, tag, flags = self._program.read_name(name_address)
        return Field(name, self._program.type_at(type_address), tag, bool(flags & _IS_EMBEDDED))


class Program:
    """An executable file."""

    def __init__(self, path: pathlib.Path) -> None:
        self._data = path.read_bytes()
        self._sections = dict(self._read_sections())
        if ".go.module" not in self._sections:
            raise SystemExit(f"{path} is not made by Go 1.26")
        self.types = self._sections[".rodata"][0]
        """Where the types begin: all offsets are from there."""
        self._known: dict[int, Type] = {}

    def _read_sections(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        """Give the name of each section; its address, its place in the file, and its size."""
        (table,) = struct.unpack_from("<Q", self._data, 0x28)
        size, count, names = struct.unpack_from("<HHH", self._data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", self._data, table + size * index) for index in range(count)]
        for name, _, _, address, place, length in headers:
            start = headers[names][4] + name
            yield self._data[start : self._data.index(b"\0", start)].decode(), (address, place, length)

    def unpack(self, form: str, address: int) -> int:
        """Read a number in the format of `struct`."""
        return int(struct.unpack_from(f"<{form}", self._data, self._find(address))[0])

    def _find(self, address: int) -> int:
        for start, place, length in self._sections.values():
            if start and start <= address < start + length:
                return address - start + place
        raise ValueError(f"nothing is at {address:#x}")

    def read_name(self, address: int) -> tuple[str, str, int]:
        """Read a name as of `abi.Name`: the name, the tag, the flags."""
        place = self._find(address)
        flags = self._data[place]
        name, place = self._read_text(place + 1)
        tag = self._read_text(place)[0] if flags & _HAS_TAG else ""
        return name, tag, flags

    def _read_text(self, place: int) -> tuple[str, int]:
        size = shift = 0
        while True:
            byte = self._data[place]
            place += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return self._data[place : place + size].decode(), place + size

    def type_at(self, address: int) -> Type:
        if address not in self._known:
            self._known[address] = Type(self, address)
        return self._known[address]

    def structures(self) -> Iterator[Type]:
        """Give all structures with names that something else refers to."""
        address, _, length = self._sections[".typelink"]
        seen: set[int] = set()
        for offset in range(0, length, 4):
            linked = self.type_at(self.types + self.unpack("i", address + offset))
            while linked.kind in ("pointer", "slice", "array", "map") and not linked.is_named:
                linked = linked.element
            if linked.kind == "struct" and linked.package and id(linked) not in seen:
                seen.add(id(linked))
                yield linked
