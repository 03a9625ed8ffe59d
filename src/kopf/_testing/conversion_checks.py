"""Checks of conversions: whether objects survive the way to other versions and back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import json
import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from kopf._handlers.converting import ConversionError, ConversionRoutes, convert, convert_async
from kopf._handlers.registry import OperatorRegistry, get_default_registry
from kopf._models.crds import Model, list_models, make_definitions
from kopf._testing.random_objects import RandomValues
from kopf._values import codec
from kopf._values.diffs import diff
from kopf_cluster.custom_resources.pruning import prune
from kopf_cluster.kinds import schemas

Obj = dict[str, Any]

_TRIES = 20
"""How many random objects are made for each one that fits its schema."""


def check_conversions(
    definition: Mapping[str, Any] | str | os.PathLike[str] | Model,
    *,
    versions: Collection[str] | None = None,
    objects: Iterable[Mapping[str, Any]] = (),
    examples: int = 100,
    seed: int = 0,
    registry: OperatorRegistry | None = None,
) -> None:
    """
    Check that all other versions accept the objects, and that the objects come back unchanged.

    The objects are random, and fit the schemas of the definition. It is also a failure if a version drops or refuses
    a converted field. Conversions can add annotations and labels.

    :param definition: the manifest of the custom resource definition; or the path to a YAML file with one; or a model,
        if its other versions are models, too.
    :param versions: the versions whose objects must survive; by default, all.
    :param objects: more objects to check, e.g. for values that must match patterns: random ones mostly do not.
    :param examples: the number of random objects for each version.
    :param seed: the seed of the random values: the same seed makes the same objects.
    :param registry: the registry with the conversions; by default, the default one.

    Raises :class:`AssertionError` with the smallest object that does not survive; :class:`ValueError` if no object fits
    the schema.

    Large because all but the definition has its default.
    """
    registry = get_default_registry() if registry is None else registry
    manifest = _get_manifest(definition, registry)
    checker = Checker(manifest, ConversionRoutes(manifest["metadata"]["name"], registry.conversions))
    given: list[Obj] = [codec.decode(codec.encode(obj)) for obj in objects]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # here, an event loop can be running already
        for version in checker.schemas if versions is None else versions:
            own = [obj for obj in given if obj["apiVersion"] == f"{manifest['spec']['group']}/{version}"]
            found = [*own, *checker.make_objects(version, examples, seed)]
            if not found:
                raise ValueError(f"No random object fits the schema of {version}: give some in objects=.")
            for other in checker.schemas:
                pool.submit(checker.check_all, _Journey(version, other), found).result()


class _Journey(NamedTuple):
    """There and back."""

    source: str
    target: str


class Checker:
    def __init__(self, manifest: Mapping[str, Any], routes: ConversionRoutes) -> None:
        self._spec = manifest["spec"]
        self._routes = routes
        self.schemas = {
            version["name"]: schemas.parse(version["schema"]["openAPIV3Schema"]) for version in self._spec["versions"]
        }
        """By the versions."""

    def make_objects(self, version: str, count: int, seed: int) -> Iterator[Obj]:
        """Make objects that fit the schema of the version; maybe fewer."""
        values, made = RandomValues(seed), 0
        head = {"apiVersion": f"{self._spec['group']}/{version}", "kind": self._spec["names"]["kind"]}
        metadata = {"name": "example", "namespace": "default", "uid": "uid", "labels": {"a": "b"}}
        for _ in range(count * _TRIES):
            obj = {**values.make(self.schemas[version].raw), **head, "metadata": copy.deepcopy(metadata)}
            if made < count and not self._complete(obj, version):
                made += 1
                yield obj

    def _complete(self, obj: Obj, version: str) -> list[str]:
        """Complete the object as the API server does; list the fields that it drops, and its refusals."""
        schema = self.schemas[version]
        schemas.fill_defaults(obj, schema)
        dropped = [f"{path}: unknown in {version}, so it is dropped" for path in prune(obj, schema, "", root=True)]
        return [*dropped, *(f"refused in {version}: {error}" for error in schemas.validate(obj, schema, ""))]

    def check_all(self, journey: _Journey, objs: Iterable[Obj]) -> None:
        """Raise :class:`AssertionError` if an object does not survive, with the smallest one of that kind."""
        obj = next((obj for obj in objs if self._list_losses(journey, obj)), None)
        if obj is None:
            return
        smallest = _shrink(
            obj, lambda item: not self._complete(item, journey.source) and self._list_losses(journey, item)
        )
        losses = "\n".join(f"  {text}" for text in self._list_losses(journey, smallest))
        shown = json.dumps(smallest, ensure_ascii=False, indent=2)
        raise AssertionError(
            f"{self._routes.definition}, from {journey.source} to {journey.target} and back:\n"
            f"{losses}\nThe object:\n{shown}"
        )

    def _list_losses(self, journey: _Journey, obj: Obj) -> list[str]:
        try:
            there = asyncio.run(self._convert(obj, *journey))
            if problems := self._complete(there, journey.target):
                return problems
            back = asyncio.run(self._convert(there, *reversed(journey)))
        except ConversionError as e:
            return [str(e)]
        if problems := self._complete(back, journey.source):
            return problems
        for field in ("labels", "annotations"):
            old, new = obj["metadata"].get(field, {}), back["metadata"].get(field, {})
            back["metadata"][field] = {key: value for key, value in new.items() if key in old}
        before = {**obj, "metadata": {"labels": {}, "annotations": {}, **obj["metadata"]}}
        return [f"{'.'.join(item.field)}: {item.old!r} has become {item.new!r}" for item in diff(before, back)]

    async def _convert(self, obj: Obj, source: str, target: str) -> Obj:
        obj = copy.deepcopy(obj)
        for handler in self._routes.find(source, target):
            obj = await convert_async(handler, obj) if handler.is_async else convert(handler, obj)
        converted: Obj = codec.decode(codec.encode(obj))
        return converted


def _shrink(obj: Obj, is_lost: Callable[[Obj], object]) -> Obj:
    """Remove all fields without which it is lost anyway."""
    for path in list(
        _list_paths({key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")})
    ):
        smaller = copy.deepcopy(obj)
        place: Any = smaller
        for key in path[:-1]:
            place = place.get(key, {})
        if place.pop(path[-1], None) is not None and is_lost(smaller):
            obj = smaller
    return obj


def _list_paths(value: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, item in value.items():
        yield (key,)
        if isinstance(item, dict):
            yield from ((key, *path) for path in _list_paths(item))


def _get_manifest(
    definition: Mapping[str, Any] | str | os.PathLike[str] | Model, registry: OperatorRegistry
) -> Mapping[str, Any]:
    if isinstance(definition, Mapping):
        return definition
    if isinstance(definition, str | os.PathLike):
        return _read(pathlib.Path(definition))
    name = definition.resource.name
    [manifest] = make_definitions(model for model in list_models(registry) if model.resource.name == name)
    return manifest


def _read(path: pathlib.Path) -> Mapping[str, Any]:
    documents = [
        item for item in yaml.safe_load_all(path.read_text()) if item and item["kind"] == "CustomResourceDefinition"
    ]
    if len(documents) != 1:
        raise ValueError(f"The file {path} must have exactly one definition, but it has {len(documents)}.")
    definition: Mapping[str, Any] = documents[0]
    return definition
