"""Sub-handlers, and the lifecycles."""

from __future__ import annotations

from tests.differential.lives import Case, create, delete, edit, saved, settle, start, stop, until

ONCE = (create(spec={"items": ["a", "b"], "field": 1}), settle())


def living(lifecycle: str) -> str:
    return f"""
def make(number):
    @kopf.on.create(*E, id=f'fn{{number}}', backoff=0.1)
    def fn(retry, **kw):
        see({{**kw, 'retry': retry}}, tag=number)
        if number < 3 and retry < number:
            raise kopf.TemporaryError('again', delay=0)
        return number
for number in range(5):
    make(number)
kopf.set_default_lifecycle(kopf.lifecycles.{lifecycle})
"""


OUTSIDE = """
def catching(error, fn):
    try:
        fn()
    except error:
        note(f'{error.__name__} is caught')
async def catching_in(error, **options):
    try:
        await kopf.execute(**options)
    except error:
        note(f'{error.__name__} is caught')
def sub(**kw): pass
async def check():
    catching(TypeError, lambda: kopf.register(sub))
    catching(TypeError, lambda: kopf.subhandler()(sub))
    await catching_in(LookupError)
    await catching_in(RuntimeError, fns=[sub])
    await catching_in(RuntimeError, handlers=[])
    await catching_in(RuntimeError, registry=kopf.OperatorRegistry())
    await catching_in(TypeError, fns=[sub], handlers=[])
catching(LookupError, lambda: kopf.register(sub))
catching(LookupError, lambda: kopf.subhandler()(sub))
asyncio.run(catching_in(LookupError, fns=[sub]))

@kopf.on.startup()
@kopf.on.cleanup()
@kopf.on.event(*E, when=lambda type, **_: type == 'ADDED')
@kopf.daemon(*E)
@kopf.timer(*E, interval=1000)
@kopf.index(*E)
async def fn(**kw):
    await check()
"""


CASES = [
    Case(
        "sub",
        """
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        def parent(spec, **kw):
            see({**kw, 'spec': spec})
            for item in spec.get('items', []):
                @kopf.subhandler(id=item)
                def sub(**kw):
                    see(kw, tag=f'sub {item}')
                    return item
            return 'parent'
        """,
        (*ONCE, edit(items=["b", "c"]), settle(), edit(items=None), settle()),
    ),
    Case(
        "lifecycle-default",
        living("get_default_lifecycle()").replace(
            "kopf.set_default_lifecycle(kopf.lifecycles.get_default_lifecycle())", ""
        ),
        ONCE,
    ),
    Case("lifecycle-asap", living("asap"), ONCE),
    Case("lifecycle-one-by-one", living("one_by_one"), ONCE),
    Case("lifecycle-all-at-once", living("all_at_once"), ONCE),
    Case("lifecycle-randomized", living("randomized"), ONCE, parallel=True),
    Case("lifecycle-shuffled", living("shuffled"), ONCE, parallel=True),
    Case(
        "lifecycle-custom", living("asap").replace("kopf.lifecycles.asap", "lambda handlers, **kw: handlers[-1:]"), ONCE
    ),
    Case(
        "lifecycle-choosing-nothing",
        """
        import time
        asked = []
        def choose_late(handlers, **kw):
            asked.append(time.monotonic())
            if len(asked) < 3:
                return []
            if len(asked) == 3:
                note('asked again later' if asked[-1] - asked[0] > 1.5 else 'asked again at once')
            return handlers
        @kopf.on.create(*E)
        def fn1(**kw):
            see(kw)
        @kopf.on.create(*E)
        def fn2(**kw):
            see(kw)
        kopf.set_default_lifecycle(choose_late)
        """,
        (ONCE[0], until("fn1"), settle()),
    ),
    Case(
        "sub-execute",
        """
        @kopf.on.create(*E)
        async def parent(spec, **kw):
            async def sub(x, **kw):
                see(kw, tag=x)
                return x
            await kopf.execute(fns={item: functools.partial(sub, item) for item in spec['items']})
            note('executed')
            return 'done'
        """,
        ONCE,
    ),
    Case(
        "sub-execute-list",
        """
        def one(**kw):
            see(kw)
            return 1
        def two(**kw):
            see(kw)
            return 2
        @kopf.on.create(*E)
        async def parent(**kw):
            await kopf.execute(fns=[one, two])
        """,
        ONCE,
    ),
    Case(
        "sub-register",
        """
        @kopf.on.create(*E)
        def parent(spec, **kw):
            see({**kw, 'spec': spec})
            for item in spec['items']:
                kopf.register(functools.partial(note, item) and (lambda item=item, **kw: item), id=item)
        """,
        ONCE,
    ),
    Case(
        "sub-default-ids",
        """
        @kopf.on.create(*E)
        def parent(**kw):
            @kopf.subhandler()
            def inner(**kw):
                see(kw)
                return 1
            @kopf.subhandler()
            async def other(**kw):
                see(kw)
                return 2
        """,
        ONCE,
    ),
    Case(
        "sub-retried",
        """
        @kopf.on.create(*E)
        def parent(retry, **kw):
            see({**kw, 'retry': retry})
            @kopf.subhandler(id='a')
            def a(retry, **kw):
                see({**kw, 'retry': retry})
                if retry < 2:
                    raise kopf.TemporaryError('again', delay=0.1)
                return 'a'
            @kopf.subhandler(id='b')
            def b(**kw):
                see(kw)
                return 'b'
        """,
        ONCE,
    ),
    Case(
        "sub-failing",
        """
        @kopf.on.create(*E)
        def parent(**kw):
            note('parent')
            @kopf.subhandler(id='a')
            def a(**kw):
                see(kw)
                raise kopf.PermanentError('no')
            @kopf.subhandler(id='b')
            def b(**kw):
                see(kw)
                return 'b'
        @kopf.on.create(*E)
        def another(**kw): see(kw)
        """,
        ONCE,
    ),
    Case(
        "sub-with-retries-of-the-parent",
        """
        @kopf.on.create(*E, retries=2)
        def parent(retry, **kw):
            see({**kw, 'retry': retry})
            for item in 'abcd':
                @kopf.subhandler(id=item)
                def sub(item=item, **kw):
                    see(kw)
                    return item
        """,
        ONCE,
    ),
    Case(
        "sub-retry-counts-of-the-parent",
        """
        @kopf.on.create(*E)
        def parent(retry, **kw):
            note(f'parent {retry}')
            for item in 'abc':
                @kopf.subhandler(id=item)
                def sub(**kw):
                    note('sub')
        """,
        ONCE,
    ),
    Case(
        "sub-nested",
        """
        @kopf.on.create(*E)
        def parent(**kw):
            @kopf.subhandler(id='a')
            def a(**kw):
                @kopf.subhandler(id='x')
                def x(**kw):
                    see(kw)
                    return 'x'
                return 'a'
            return 'parent'
        """,
        ONCE,
    ),
    Case(
        "sub-filtered",
        """
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        def parent(**kw):
            @kopf.subhandler(id='labelled', labels={'mine': 'yes'})
            def labelled(**kw): see(kw)
            @kopf.subhandler(id='when', when=lambda spec, **_: spec['field'] == 2)
            def when(**kw): see(kw)
            @kopf.subhandler(id='all')
            def all(**kw): see(kw)
        """,
        (
            create(labels={"mine": "yes"}),
            create("another"),
            settle(),
            edit(field=2),
            edit("another", field=2),
            settle(),
        ),
    ),
    Case(
        "sub-of-fields",
        """
        @kopf.on.field(*E, field='spec.items')
        def parent(old, new, **kw):
            for item in set(new or []) - set(old or []):
                @kopf.subhandler(id=item)
                def sub(**kw):
                    see(kw)
                    return 'added'
        """,
        (create(spec={"items": ["a"]}), settle(), edit(items=["a", "b"]), settle()),
    ),
    Case(
        "sub-of-deletion",
        """
        @kopf.on.delete(*E)
        def parent(**kw):
            for item in 'ab':
                @kopf.subhandler(id=item)
                def sub(retry, **kw):
                    see({**kw, 'retry': retry})
                    if retry < 1:
                        raise kopf.TemporaryError('used', delay=0.1)
        """,
        (*ONCE, delete(), settle()),
    ),
    Case(
        "sub-across-restarts",
        """
        @kopf.on.create(*E)
        def parent(**kw):
            see(kw)
            for item in 'abc':
                @kopf.subhandler(id=item)
                def sub(item=item, **kw):
                    see(kw)
                    if item == 'b' and os.environ['LIFE'] == '1':
                        raise kopf.TemporaryError('held', delay=6)
                    return item
        """,
        (create(), saved("parent.c"), stop(), start(), settle()),
    ),
    Case(
        "sub-with-a-patch",
        """
        @kopf.on.create(*E)
        def parent(patch, **kw):
            patch.status['parent'] = {'of': 'subs'}
            for item in 'ab':
                @kopf.subhandler(id=item)
                def sub(patch, item=item, **kw):
                    patch.status.setdefault('subs', {})[item] = True
        """,
        ONCE,
    ),
    Case(
        "sub-of-a-field",
        """
        @kopf.on.field(*E, field='spec.field')
        def parent(**kw):
            see(kw)
            for field in [None, 'x', 'y.z', 'spec.field.x', 'spec.other']:
                @kopf.subhandler(id=f'{field}', field=field, when=lambda old, new, **kw: 'spec' not in (new or {}))
                def sub(**kw): see(kw)
            @kopf.subhandler(id='middle', field='y')
            def middle(**kw):
                see(kw)
                @kopf.subhandler(id='z', field='z')
                def z(**kw): see(kw)
        """,
        (
            create(spec={"field": {"x": 1, "y": {"z": 1}}, "other": 1}),
            settle(),
            edit(field={"x": 2, "y": {"z": 2}}),
            settle(),
        ),
    ),
    Case("sub-outside", OUTSIDE, (create(), settle())),
    Case(
        "sub-of-no-functions",
        """
        @kopf.on.create(*E)
        async def parent(**kw):
            see(kw)
            for fns in (5, [5], 'abc'):
                try:
                    await kopf.execute(fns=fns)
                except ValueError:
                    note(f'{fns}: ValueError')
            try:
                kopf.register(5)
            except ValueError:
                note('registered: ValueError')
        """,
        ONCE,
    ),
    Case(
        "sub-executed-twice",
        """
        @kopf.on.create(*E)
        async def parent(retry, **kw):
            see({**kw, 'retry': retry})
            async def sub(x, retry, **kw):
                see({**kw, 'retry': retry}, tag=x)
                if retry < 1:
                    raise kopf.TemporaryError('again', delay=0.2)
                return x
            await kopf.execute(fns={'a': functools.partial(sub, 'a'), 'b': functools.partial(sub, 'b')})
            note('between')
            await kopf.execute(fns={'c': functools.partial(sub, 'c'), 'a': functools.partial(sub, 'a again')})
            return 'done'
        """,
        (*ONCE, edit(field=2), settle()),
    ),
    Case(
        "sub-declared-after-execution",
        """
        @kopf.on.create(*E)
        async def parent(**kw):
            see(kw)
            @kopf.subhandler(id='first')
            def first(**kw):
                see(kw, tag='first')
            await kopf.execute()
            @kopf.subhandler(id='second')
            def second(**kw):
                see(kw, tag='second')
        """,
        ONCE,
    ),
    Case(
        "ids-of-one-annotation",
        """
        @kopf.on.create(*E, id='a/b')
        async def first(**kw):
            see(kw)
        @kopf.on.create(*E, id='a.b')
        async def second(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 1:
                raise kopf.TemporaryError('again', delay=0.2)
        """,
        ONCE,
    ),
    Case(
        "order-of-declaration",
        """
        @kopf.on.create(*E)
        @kopf.on.resume(*E)
        def c(**kw): see(kw)
        @kopf.on.create(*E)
        def a(**kw): see(kw)
        @kopf.on.resume(*E)
        @kopf.on.create(*E)
        def b(**kw): see(kw)
        """,
        (create(), settle(), stop(), start(), settle()),
    ),
]
