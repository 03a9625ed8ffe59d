"""The operator of the README: errors for good, changes of one field, and a deletion that waits for something."""

import kopf


@kopf.on.create("kopfexamples")
def create_fn(name, spec, logger, **_):
    if "duration" not in spec:
        raise kopf.PermanentError("There must be a duration.")
    logger.info(f"{name} will live for {spec['duration']}.")
    return {"message": f"hello, {name}"}  # it goes to the object's status


@kopf.on.update("kopfexamples", field="spec.duration")
def update_fn(old, new, logger, **_):
    logger.info(f"The duration is changed from {old} to {new}.")


@kopf.on.delete("kopfexamples")
async def delete_fn(name, retry, **_):
    if retry < 3:
        raise kopf.TemporaryError(f"{name} is still in use.", delay=10)
