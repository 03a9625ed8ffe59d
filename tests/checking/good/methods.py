"""Handlers that are methods of an instance, and those of several kinds of resources."""
import kopf


class Operator:
    def __init__(self):
        self.count = 0

    async def create(self, spec, patch, **_):
        self.count += 1
        patch.status["phase"] = spec.get("image", "nothing")


operator = Operator()
kopf.on.create("widgets")(operator.create)


@kopf.on.event("pods", labels={"app": kopf.PRESENT})
@kopf.on.event("apps/v1", "deployments")
@kopf.on.event(category="all")
@kopf.on.event(kind="Widget")
@kopf.on.event("wd.example.com")
def event_fn(spec, status, type, **_):
    return None


@kopf.on.field("widgets", field="spec.free.anything.at.all")
@kopf.on.field("widgets", field="spec.settings.color")
@kopf.on.field("widgets", field=("metadata", "labels", "some.label/name"))
@kopf.on.field("widgets", field="spec.items")
def field_fn(old, new, **_):
    pass


@kopf.on.validate("widgets", operations=["CREATE", "UPDATE"])
def validate_fn(spec, old, new, **_):
    if spec.get("size", 0) < 0:
        raise kopf.AdmissionError("The size cannot be negative.")
