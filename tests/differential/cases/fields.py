"""Field handlers, and who counts as one handler."""

from __future__ import annotations

from tests.differential.lives import Case, create, delete, edit, patch, settle, start, stop

CASES = [
    Case(
        "field",
        """
        @kopf.on.field(*E, field='spec.field')
        def fn(**kw):
            see(kw)
            return kw['new']
        """,
        (
            create(),
            settle(),
            edit(field=2),
            settle(),
            edit(other=1),
            settle(),
            edit(field=None),
            settle(),
            edit(field={"a": 1}),
            settle(),
            edit(field={"a": 2, "b": 3}),
            settle(),
            delete(),
            settle(),
        ),
    ),
    Case(
        "field-deep",
        """
        @kopf.on.field(*E, field='spec.a.b')
        def fn(**kw):
            see(kw)
            return kw['new']
        """,
        (
            create(spec={"a": {"b": {"c": 1}, "x": 1}}),
            settle(),
            edit(a={"b": {"c": 2}}),
            settle(),
            edit(a={"x": 2}),
            settle(),
            edit(a={"b": 1}),
            settle(),
            edit(a=None),
            settle(),
            edit(a=5),
            settle(),
        ),
    ),
    Case(
        "field-of-scalar",
        """
        @kopf.on.field(*E, field='spec.field.deeper')
        def fn(**kw): see(kw)
        """,
        (create(), settle(), edit(field=2), settle(), edit(field={"deeper": 1}), settle()),
    ),
    Case(
        "field-and-update",
        """
        @kopf.on.field(*E, field='spec.field')
        def field_fn(**kw): see(kw)
        @kopf.on.update(*E)
        def update_fn(**kw): see(kw)
        @kopf.on.create(*E)
        def create_fn(**kw): see(kw)
        """,
        (create(), settle(), edit(field=2), settle(), edit(other=1), settle()),
    ),
    Case(
        "field-one-function-with-all",
        """
        @kopf.on.field(*E, field='spec.field')
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        @kopf.on.delete(*E)
        def fn(**kw):
            see(kw)
            return str(kw['reason'])
        """,
    ),
    Case(
        "field-retried",
        """
        @kopf.on.field(*E, field='spec.field')
        def fn(**kw):
            see(kw)
            if kw['retry'] < 2:
                raise kopf.TemporaryError('again', delay=0.1)
            return kw['new']
        """,
        (create(), settle(), edit(field=2), settle()),
    ),
    Case(
        "field-changed-in-downtime",
        """
        @kopf.on.field(*E, field='spec.field')
        def fn(**kw): see(kw)
        """,
        (create(), settle(), stop(), edit(field=5, other=3), start(), settle()),
    ),
    Case(
        "field-of-another-stanza",
        """
        @kopf.on.field(*E, field='data.key')
        def fn(**kw): see(kw)
        """,
        (create(extra={"data": {"key": 1}}), settle(), patch({"data": {"key": 2}}), settle()),
    ),
    Case(
        "id-given",
        """
        @kopf.on.create(*E, id='some-id')
        @kopf.on.update(*E, id='other.id', field='spec.field')
        def fn(**kw):
            see(kw)
            return 1
        """,
    ),
    Case(
        "id-lambda",
        """
        kopf.on.create(*E, id='lambda')(lambda **kw: note('called') or 5)
        """,
        (create(), settle()),
    ),
    Case(
        "id-partial",
        """
        def fn(x, **kw):
            see(kw)
            return x
        kopf.on.create(*E, id='one')(functools.partial(fn, 1))
        kopf.on.create(*E, id='two')(functools.partial(fn, x=2))
        kopf.on.update(*E)(functools.partial(fn, 3))
        """,
        (create(), settle(), edit(field=2), settle()),
    ),
    Case(
        "id-methods",
        """
        class Handlers:
            def __init__(self, name):
                self.name = name
            def create(self, **kw):
                note(self.name)
                return self.name
        class Others:
            def create(self, **kw):
                note('other')
                return 'other'
        db, other = Handlers('db'), Others()
        kopf.on.create(*E)(db.create)
        kopf.on.create(*E)(other.create)
        """,
        (create(), settle()),
    ),
    Case(
        "id-methods-of-two-instances",
        """
        class Handlers:
            def __init__(self, name):
                self.name = name
            def create(self, **kw):
                note(self.name)
                return self.name
        db, user = Handlers('db'), Handlers('user')
        kopf.on.create(*E, id='db')(db.create)
        kopf.on.create(*E, id='user')(user.create)
        """,
        (create(), settle()),
    ),
    Case(
        "id-static-and-class-methods",
        """
        class Handlers:
            @kopf.on.create(*E)
            @staticmethod
            def static(**kw):
                see(kw)
                return 's'
            @classmethod
            def klass(cls, **kw):
                see(kw)
                return cls.__name__
        kopf.on.create(*E)(Handlers.klass)
        """,
        (create(), settle()),
    ),
    Case(
        "id-closures",
        """
        def factory(tag):
            def fn(**kw):
                see(kw)
                return tag
            return fn
        kopf.on.create(*E)(factory('one'))
        def another():
            def fn(**kw):
                see(kw)
                return 'another'
            return fn
        kopf.on.create(*E)(another())
        """,
        (create(), settle()),
    ),
    Case(
        "id-long",
        """
        @kopf.on.create(*E, id='a' * 70)
        @kopf.on.create(*E, id='b' * 50 + '/' + 'c' * 30)
        def fn(**kw):
            see(kw)
            if kw['retry'] < 1:
                raise kopf.TemporaryError('again', delay=0.2)
            return 1
        """,
        (create(), settle()),
    ),
    Case(
        "id-callable-object",
        """
        class Callable:
            def __call__(self, **kw):
                note('called')
                return 1
        kopf.on.create(*E, id='callable')(Callable())
        """,
        (create(), settle()),
    ),
    Case(
        "id-decorated",
        """
        def decorate(fn):
            @functools.wraps(fn)
            def wrapper(**kw):
                note('wrapped')
                return fn(**kw)
            return wrapper
        @kopf.on.create(*E)
        @decorate
        def fn(**kw):
            see(kw)
            return 1
        """,
        (create(), settle()),
    ),
    Case(
        "id-wrapped-async",
        """
        def decorate(fn):
            @functools.wraps(fn)
            async def wrapper(**kw):
                return await fn(**kw)
            return wrapper
        @kopf.on.create(*E)
        @decorate
        async def fn(**kw):
            see(kw)
            return 1
        """,
        (create(), settle()),
    ),
    Case(
        "one-function-twice",
        """
        @kopf.on.create(*E, param=1)
        @kopf.on.create(*E, param=2)
        def fn(**kw): see(kw)
        """,
        (create(), settle()),
    ),
    Case(
        "one-function-by-two-selectors",
        """
        @kopf.on.create('kopfexamples')
        @kopf.on.create('kopf.dev', 'v1', 'kopfexamples')
        def fn(**kw): see(kw)
        """,
        (create(), settle()),
    ),
]
