import kopf


@kopf.on.create("widgets")
def create_fn(**_)  # expect: load
    pass
