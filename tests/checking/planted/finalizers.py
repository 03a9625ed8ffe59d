import kopf


@kopf.on.create("widgets")
def create_fn(patch, **_):
    patch.metadata["finalizers"] = ["example.com/mine"]  # expect: manual-finalizer


@kopf.on.event("widgets")
def event_fn(meta, patch, **_):
    if meta.get("deletionTimestamp"):
        patch["metadata"]["finalizers"] = []  # expect: manual-finalizer
