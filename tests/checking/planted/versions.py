import kopf


@kopf.on.create("autoscaling", "v1", "horizontalpodautoscalers")
def create_fn(patch, **_):
    patch.status["phase"] = "Created"


@kopf.on.create("pods")
@kopf.on.event("autoscaling", "v2", "horizontalpodautoscalers")
def other_fn(**_): ...


@kopf.on.update("autoscaling", "v2", "horizontalpodautoscalers")  # expect: several-versions
def update_fn(patch, **_):
    patch.status["phase"] = "Updated"
