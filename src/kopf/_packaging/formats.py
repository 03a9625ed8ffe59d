"""Formats: the manifests as files, for kubectl, Kustomize, and Helm. The same objects always give the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from kopf._packaging.manifests import Files

NAMES = ("plain", "kustomize", "helm")

RELEASE_NAMESPACE = "{{ .Release.Namespace }}"
"""The namespace of the operator in a chart, instead of the namespace of the account."""

_VALUES = "nodeSelector", "tolerations", "affinity", "imagePullSecrets"
"""The fields of the pod that only the values of the chart set."""


def dump(objects: Iterable[Mapping[str, Any]]) -> str:
    """Write the objects as a stream of YAML."""
    return "---\n".join(_dump(item) for item in objects)


def _dump(value: object) -> str:
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, default_flow_style=None, width=120)


class Dumper(yaml.SafeDumper):
    """
    Writes YAML for ``kubectl``, which reads more plain texts as booleans and numbers than Python: ``y``, ``1e3``.

    The same object at several places is written in full each time, as people read and edit the files.
    """

    def ignore_aliases(self, data: object) -> bool:
        return True


Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), [*"yYnN"])
Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile("^[-+]?0[oO][0-7]+$"), [*"-+0"])
Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), [*"-+.0123456789"]
)


def render(objects: Files, format: str, *, name: str, image: str) -> dict[str, str]:
    """Make the texts of the files by their names; an empty text is for a file that must be absent."""
    if format == "helm":
        return _render_chart(objects, name, image)
    files = {f"{key}.yaml": dump(items) for key, items in objects.items()}
    if format == "kustomize":
        repository, tag = split_image(image)
        images = [{"name": repository, "newName": repository, "newTag": tag}]
        names = [path for path, text in files.items() if text]
        content = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names}
        files["kustomization.yaml"] = _dump({**content, **({"images": images} if tag else {})})
    return files


def split_image(image: str) -> tuple[str, str]:
    """Split the image into the repository and the tag; the tag is empty if there is none, or there is a digest."""
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag and "@" not in repository else (image, "")


def _render_chart(objects: Files, name: str, image: str) -> dict[str, str]:
    files: dict[str, str] = {}
    values: dict[str, Any] = {"image": image, "imagePullPolicy": "IfNotPresent", "env": []}
    for key, items in objects.items():
        if key == "crds":
            files["crds/crds.yaml"] = dump(items)
        elif key == "deployment":
            [deployment] = items
            values["resources"] = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
            files["templates/deployment.yaml"] = _make_template(deployment)
        else:
            files[f"templates/{key}.yaml"] = dump(items)
    values |= {field: {} if field in ("nodeSelector", "affinity") else [] for field in _VALUES}
    chart = {
        "apiVersion": "v2",
        "name": name,
        "description": f"The operator {name}",
        "type": "application",
        "version": "0.1.0",
        "appVersion": split_image(image)[1] or "latest",
    }
    return {"Chart.yaml": _dump(chart), "values.yaml": _dump(values), **files}


def _make_template(deployment: dict[str, Any]) -> str:
    """Make the template of the deployment, with references to the values of the chart."""
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    container = {**container, "image": "{{ .Values.image }}", "imagePullPolicy": "{{ .Values.imagePullPolicy }}"}
    own_env = json.dumps(container["env"])
    container |= {field: f"<{field}>" for field in ("resources", "env")}
    spec = {**spec, "containers": [container], **{field: f"<{field}>" for field in _VALUES}}
    template = {**deployment["spec"]["template"], "spec": spec}
    text = _dump({**deployment, "spec": {**deployment["spec"], "template": template}})
    text = text.replace("<env>", f"{{{{ toJson (concat (fromJsonArray `{own_env}`) .Values.env) }}}}")
    for field in ("resources", *_VALUES):
        text = text.replace(f"<{field}>", f"{{{{ toJson .Values.{field} }}}}")
    return text
