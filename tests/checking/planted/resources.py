import kopf


@kopf.on.create("widgts")  # expect: unknown-resource
@kopf.on.create("example.com", "v2", "widgets")
def create_fn(**_):
    pass


@kopf.on.update("example.com/v1", "gadgets")  # expect: unknown-resource
def update_fn(**_):
    pass


@kopf.on.resume("widgets", owns=["deployments", "servces"])  # expect: unknown-resource
def resume_fn(**_):
    pass
