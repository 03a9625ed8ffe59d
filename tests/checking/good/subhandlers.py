"""Sub-handlers of loops, each with its own value and id."""
import functools

import kopf


@kopf.on.create("widgets")
async def create_fn(spec, **_):
    for item in spec.get("items", []):

        @kopf.subhandler(id=item)
        async def create_item(logger, item=item, **_):
            logger.info(f"Creating {item}.")

    @kopf.subhandler()
    async def finish(logger, **_):
        logger.info("Done.")


@kopf.on.update("widgets")
async def update_fn(spec, **_):
    handlers = {}
    for item in spec.get("items", []):
        handlers[item] = functools.partial(update_item, item=item)
    await kopf.execute(fns=handlers)


async def update_item(logger, item, **_):
    logger.info(f"Updating {item}.")


@kopf.on.delete("widgets")
def delete_fn(spec, **_):
    for item in spec.get("items", []):
        kopf.register(functools.partial(delete_item, item=item), id=item)


def delete_item(logger, item, **_):
    logger.info(f"Deleting {item}.")
