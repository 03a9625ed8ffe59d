"""
Make the data of the built-in kinds for the local cluster, from packages on PyPI.

``kubernetes-validate`` has the schemas with their list types, map keys, and merge keys; ``lightkube-models`` has
the resources with their plurals, scopes, verbs, and subresources. What neither of them knows is in
``builtin_extras.py``. Run it as ``make data`` after a change of either; the packages are downloaded to a temporary
folder, or taken from where they are unpacked already::

    python tools/generate_builtin_kinds.py --packages .../site-packages

The files are made anew byte by byte the same, unless their sources have changed.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import builtin_extras as extras

SCHEMAS = "kubernetes-validate==1.36.0"
RESOURCES = "lightkube-models==1.36.3.8"
KUBERNETES = "1.36.0"
TARGET = pathlib.Path(__file__).parent.parent / "src/kopf_cluster/kinds/data"

VERBS = {"post": "create", "put": "update"}
EXTENSIONS = ("list-type", "list-map-keys", "map-type", "patch-strategy", "patch-merge-key")
COMMON = ("DeleteOptions", "Status", "WatchEvent")  # what requests and answers carry besides the kinds themselves
DEFINITION_PREFIX = "io.k8s.api."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."

Json = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the data of the built-in kinds for the local cluster.")
    parser.add_argument("--packages", type=pathlib.Path, help="a folder with the packages (site-packages)")
    parser.add_argument("--target", type=pathlib.Path, default=TARGET, help="where to put the files")
    options = parser.parse_args()
    if options.packages is not None:
        generate(options.packages, options.target)
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, SCHEMAS, RESOURCES],
            check=True,
        )
        generate(pathlib.Path(folder), options.target)


def generate(packages: pathlib.Path, target: pathlib.Path) -> None:
    check_versions(packages)
    raw = json.loads(
        (
            packages / "kubernetes_validate/kubernetes-json-schema" / f"v{KUBERNETES}-local" / "_definitions.json"
        ).read_bytes()
    )["$defs"]
    kinds = sorted(read_kinds(packages / "lightkube/resources", name_definitions(raw)), key=order_of)
    needed = sorted(reach(raw, find_roots(raw, kinds)))
    structures = {name: make_structure(name, raw[name]) for name in needed}
    add_enums(structures)
    descriptions = {name: make_descriptions(raw[name]) for name in needed}
    target.mkdir(parents=True, exist_ok=True)
    write_kinds(target / "kinds.json", kinds)
    write_packed(target / "structures.json.gz", structures)
    write_packed(target / "descriptions.json.gz", descriptions)


def check_versions(packages: pathlib.Path) -> None:
    """Refuse other versions than those the files claim to be made of."""
    found = {dist.name: dist.version for dist in importlib.metadata.distributions(path=[str(packages)])}
    for requirement in (SCHEMAS, RESOURCES):
        name, _, version = requirement.partition("==")
        if found.get(name) != version:
            raise SystemExit(f"{packages} has {name} {found.get(name)}, but {requirement} is needed")


# ------------------------------------------------------------------------------------------- kinds


def read_kinds(folder: pathlib.Path, definitions: dict[tuple[str, str, str], str]) -> Iterator[Json]:
    """Read the declarations without importing them: each is a class with a literal `_api_info`."""
    declared = [entry for path in sorted(folder.glob("*_v*.py")) for entry in read_declarations(path)]
    subresources: dict[tuple[str, str, str], Json] = {}
    for entry in declared:
        if "action" in entry:
            group, version, kind = entry["resource"]
            served_by = subresources.setdefault((*entry["parent"][:2], entry["plural"]), {})
            served_by[entry["action"]] = {"group": group, "version": version, "kind": kind, "verbs": entry["verbs"]}
    for entry in declared:
        if "action" not in entry:
            key = (*entry["resource"][:2], entry["plural"])
            yield make_kind(entry, subresources.get(key, {}), definitions[entry["resource"]])


def read_declarations(path: pathlib.Path) -> Iterator[Json]:
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [base.attr for base in node.bases if isinstance(base, ast.Attribute)]
        for statement in node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                info = {str(keyword.arg): read_literal(keyword.value) for keyword in statement.value.keywords}
                verbs = {VERBS.get(verb, verb) for verb in info["verbs"] if not verb.startswith("global_")}
                yield {**info, "verbs": sorted(verbs), "namespaced": bases[0].startswith("Namespaced")}


def read_literal(node: ast.expr) -> Any:
    """Read a literal; `ResourceDef(group, version, kind)` counts as a tuple."""
    if isinstance(node, ast.Call):
        return tuple(ast.literal_eval(argument) for argument in node.args)
    return ast.literal_eval(node)


def make_kind(entry: Json, subresources: Json, definition: str) -> Json:
    group, version, kind = entry["resource"]
    plural = entry["plural"]
    if group == "":
        for name, words in extras.CONNECTIONS.get(plural, {}).items():
            *verbs, options = words.split()
            subresources = {**subresources, name: {"group": "", "version": "v1", "kind": options, "verbs": verbs}}
    made = {
        "group": group,
        "version": version,
        "kind": kind,
        "plural": plural,
        "singular": kind.lower(),
        "namespaced": entry["namespaced"],
        "definition": definition,
        "verbs": extras.VERBS[plural].split() if plural in extras.VERBS else entry["verbs"],
        "shortNames": extras.SHORT_NAMES.get(plural, "").split(),
        "categories": [name for name, plurals in extras.CATEGORIES.items() if plural in plurals.split()],
        "fields": extras.SELECTABLE_FIELDS.get(f"{plural}.{group}", extras.SELECTABLE_FIELDS.get(plural, "")).split(),
        "generation": plural in extras.GENERATIONS,
        "shownDeleted": plural in extras.SHOWN_DELETED,
        "subresources": dict(sorted(subresources.items())),
    }
    return {key: value for key, value in made.items() if value not in ([], {}, False)}


def order_of(kind: Json) -> tuple[int, tuple[int, str], str]:
    """The order of kube-apiserver: groups by their priority, stable versions first, kinds by their names."""
    version = kind["version"]
    return extras.GROUPS.index(kind["group"]), (is_preview(version), version), kind["plural"]


def is_preview(version: str) -> bool:
    return "alpha" in version or "beta" in version


# ------------------------------------------------------------------------------------- definitions


def name_definitions(raw: Json) -> dict[tuple[str, str, str], str]:
    """Find the definitions of kinds; those of what belongs to all groups are left out."""
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in raw.items()
        if len(gvks := schema.get("x-kubernetes-group-version-kind", [])) == 1
        for gvk in gvks
    }


def find_roots(raw: Json, kinds: Iterable[Json]) -> Iterator[str]:
    names = name_definitions(raw)
    yield from (META + name for name in COMMON)
    for kind in kinds:
        yield kind["definition"]
        for suffix in ("", "List"):
            if name := names.get((kind["group"], kind["version"], kind["kind"] + suffix)):
                yield name
        for subresource in kind.get("subresources", {}).values():
            if name := names.get((subresource["group"], subresource["version"], subresource["kind"])):
                yield name


def reach(raw: Json, roots: Iterable[str]) -> set[str]:
    reached: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(find_references(raw[name]))
    return reached


def find_references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield name_of(node["$ref"])
        for value in node.values():
            yield from find_references(value)


def name_of(reference: str) -> str:
    return reference.rpartition("/")[2]


def make_structure(name: str, schema: Json) -> Json:
    """Give a definition as the server needs it: no descriptions, no constants, no nulls."""
    short = name.rpartition(".")[2]
    if short in ("Quantity", "IntOrString"):
        return {"type": "quantity" if short == "Quantity" else "int-or-string"}
    made = make_node(schema)
    if name in extras.OPAQUE:
        made["preserve"] = True
    if gvks := schema.get("x-kubernetes-group-version-kind"):
        made["gvk"] = [[gvk["group"], gvk["version"], gvk["kind"]] for gvk in gvks]
    return made


def make_node(schema: Json) -> Json:
    if "$ref" in schema:
        made: Json = {"ref": name_of(schema["$ref"])}
    else:
        types = schema.get("type", "any")
        made = {"type": next(name for name in types if name != "null") if isinstance(types, list) else types}
    if "format" in schema:
        made["format"] = schema["format"]
    if "properties" in schema:
        made["fields"] = {name: make_node(sub) for name, sub in schema["properties"].items()}
    if "required" in schema:
        made["required"] = schema["required"]
    if "items" in schema:
        made["items"] = make_node(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        made["values"] = make_node(schema["additionalProperties"])
    made.update({word: schema[f"x-kubernetes-{word}"] for word in EXTENSIONS if f"x-kubernetes-{word}" in schema})
    return made


def make_descriptions(schema: Json) -> list[Any]:
    fields = {name: sub["description"] for name, sub in schema.get("properties", {}).items() if "description" in sub}
    return [schema.get("description", ""), fields]


def add_enums(structures: Json) -> None:
    for path, values in extras.ENUMS.items():
        definition, _, field = path.rpartition(".")
        structures[DEFINITION_PREFIX + definition]["fields"][field]["enum"] = values.split()


# ------------------------------------------------------------------------------------------- files


def write_kinds(path: pathlib.Path, kinds: list[Json]) -> None:
    """One line a kind, so that changes can be seen in a diff."""
    lines = ",\n".join(json.dumps(kind, separators=(",", ":")) for kind in kinds)
    sources = json.dumps([SCHEMAS, RESOURCES])
    path.write_text(f'{{"kubernetes":"{KUBERNETES}","sources":{sources},"kinds":[\n{lines}\n]}}\n')


def write_packed(path: pathlib.Path, document: Json) -> None:
    text = json.dumps(document, separators=(",", ":"), sort_keys=False, ensure_ascii=False)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main()
