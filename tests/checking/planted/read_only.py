import kopf


@kopf.on.create("widgets")
def create_fn(spec, body, meta, **_):
    spec["size"] = 1  # expect: lost-change
    body["status"]["phase"] = "Created"  # expect: lost-change
    meta.labels.update(created="yes")  # expect: lost-change
    del body["metadata"]["annotations"]["note"]  # expect: lost-change


@kopf.on.mutate("widgets")
def mutate_fn(spec, patch, **_):
    spec.setdefault("items", []).append("one more")  # expect: lost-change
    patch = {"spec": {"size": 1}}  # expect: lost-change
