import kopf


@kopf.on.create("widgets", retriez=3, timeuot=60)  # expect: declaration
def create_fn(**_):
    pass


@kopf.timer("widgets", interval="10s")  # expect: declaration
def check_fn(**_):
    pass


@kopf.on.update("widgets", old=1)  # expect: declaration
def update_fn(**_):
    pass


@kopf.on.validate("widgets", operations="CREATE")  # expect: declaration
def validate_fn(**_):
    pass
