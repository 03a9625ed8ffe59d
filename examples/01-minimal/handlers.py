"""A small operator: it greets new objects, writes the greeting into their status, and tells what happens to them."""

import kopf


@kopf.on.create("kopfexamples")
def create_fn(name, spec, logger, **_):
    logger.info(f"Hello, {name}! Your duration is {spec.get('duration')}.")
    return {"message": f"hello, {name}"}


@kopf.on.update("kopfexamples")
def update_fn(diff, logger, **_):
    for op, field, old, new in diff:
        logger.info(f"{op}: {'.'.join(field)}: {old!r} -> {new!r}")


@kopf.on.delete("kopfexamples")
def delete_fn(name, logger, **_):
    logger.info(f"Goodbye, {name}!")
