import kopf


@kopf.on.field("widgets", field="spec.sise")  # expect: unknown-field
def resize_fn(spec, new, **_):
    pass


@kopf.on.create("widgets")
def create_fn(spec, patch, logger, **_):
    logger.info(spec.get("imgae"))  # expect: unknown-field
    patch.spec["template"] = {}  # expect: unknown-field
    patch.status["phase"] = "Created"
    patch["status"]["phases"] = ["Created"]  # expect: unknown-field


@kopf.on.update("widgets")
def update_fn(**_):  # expect: unknown-field
    return {"message": "It is updated."}
