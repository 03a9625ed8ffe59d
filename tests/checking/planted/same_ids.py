import kopf


@kopf.on.create("widgets", id="handle")
def create_volume(**_):
    pass


@kopf.on.create("widgets", id="handle")  # expect: declaration
def create_network(**_):
    pass
