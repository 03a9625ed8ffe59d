"""What is changed are copies, children, and the patch."""
import copy

import kopf


@kopf.on.create("widgets")
def create_fn(spec, body, labels, patch, memo, meta, **_):
    spec = dict(spec)
    spec["size"] = 1
    other = copy.deepcopy(dict(body))
    other["metadata"]["labels"] = {**labels, "copied": "yes"}
    memo.seen = True
    memo["items"] = []
    child = {"metadata": {}}
    child["metadata"]["finalizers"] = ["example.com/child"]
    patch.spec["size"] = 2
    patch.meta.labels["created"] = "yes"
    patch.setdefault("status", {})["phase"] = "Created"

    def change(body):
        body["spec"]["size"] = 3
        body["metadata"].setdefault("finalizers", []).append("example.com/mine")

    patch.fns.append(change)


@kopf.on.update("widgets")
def update_fn(spec, status, **_):
    patch = {"spec": {"size": spec.get("size")}}
    patch["status"] = dict(status)
    names = list(spec.get("items", []))
    names.append("one more")
    del names[0]


@kopf.index("widgets")
def sizes(name, spec, **_):
    return {name: spec.get("size")}
