"""The kwargs, the memos, the indices."""

from __future__ import annotations

from tests.differential.lives import Case, annotate, create, delete, edit, label, settle, start, stop

CASES = [
    Case(
        "kwargs-names",
        """
        def names(kw):
            note(' '.join(sorted(key for key in kw)))
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        @kopf.on.delete(*E)
        def change_fn(**kw):
            names(kw)
        @kopf.on.field(*E, field='spec.field')
        def field_fn(**kw):
            names(kw)
        @kopf.daemon(*E)
        async def daemon_fn(**kw):
            names(kw)
        @kopf.timer(*E, interval=100)
        def timer_fn(**kw):
            names(kw)
        @kopf.index(*E)
        def index_fn(**kw):
            count('index') > 1 or names(kw)
        @kopf.on.event(*E)
        def event_fn(**kw):
            see(kw)
            count('event') > 1 or names(kw)
        @kopf.on.startup()
        def startup_fn(**kw):
            names(kw)
        @kopf.on.cleanup()
        def cleanup_fn(**kw):
            names(kw)
        """,
    ),
    Case(
        "memos",
        """
        @kopf.on.startup()
        def startup_fn(memo, **_):
            memo.shared = []
            memo['plain'] = 1
        @kopf.on.create(*E)
        def create_fn(memo, name, **kw):
            memo.shared.append(name)
            memo.plain += 1
            memo.own = name
            see({**kw, 'memo': memo, 'name': name})
        @kopf.on.update(*E, errors=kopf.ErrorsMode.PERMANENT)
        def update_fn(memo, **kw):
            see({**kw, 'memo': {key: memo[key] for key in sorted(memo) if key != 'shared'}})
            note(memo.get('missing', 'default'))
            note(sorted(memo.shared))
            note(hasattr(memo, 'absent'))
            del memo.own
        @kopf.on.cleanup()
        def cleanup_fn(memo, **_):
            note(sorted(memo.shared))
        """,
        (
            create(),
            settle(),
            create("another"),
            settle(),
            edit(field=2),
            settle(),
            edit("another", field=2),
            settle(),
            edit(field=3),
            settle(),
        ),
    ),
    Case(
        "kwargs-types",
        """
        @kopf.on.create(*E)
        def fn(spec, meta, status, body, labels, annotations, name, namespace, uid, **_):
            note([isinstance(x, kopf.Body) for x in [body]], )
            note([meta.name, meta.namespace, meta.uid == uid, dict(meta.labels), dict(meta.annotations), name, namespace])
            note([body.spec == spec, body.status == status, body.meta == meta, body['spec'] == spec])
            note([spec.get('missing', 'default'), spec.get('nested', {}).get('x'), 'field' in spec, len(spec), sorted(spec)])
            note([dict(spec.get('nested')), list(spec['list']), type(spec['list']).__name__, type(spec['nested']).__name__])
            note([str(meta.creation_timestamp)[:1], meta.deletion_timestamp])
            note([repr(body.get('kind')), body.get('nothing')])
        """,
        (
            create(
                spec={"field": 1, "nested": {"x": 2}, "list": [1, {"y": 2}]}, labels={"a": "b"}, annotations={"c": "d"}
            ),
            settle(),
        ),
    ),
    Case(
        "kwargs-diff",
        """
        @kopf.on.update(*E)
        def fn(diff, old, new, **_):
            for op, field, before, after in sorted(diff, key=str):
                note([str(op), list(field), before, after])
            note([item.op == item.operation for item in diff])
            note([old['spec'], new['spec']])
        """,
        (create(), settle(), edit(field=2, more={"a": 1}), settle()),
    ),
    Case(
        "kwargs-reason",
        """
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        @kopf.on.delete(*E)
        @kopf.on.resume(*E)
        def fn(reason, **_):
            note([reason, str(reason), reason == kopf.Reason.CREATE, reason == 'create', f'{reason}'])
        """,
        (create(), settle(), edit(field=2), settle(), stop(), start(), settle(), delete(), settle()),
    ),
    Case(
        "kwargs-param",
        """
        @kopf.on.create(*E, param={'a': 1})
        @kopf.on.update(*E, param=2)
        def fn(**kw): see(kw)
        @kopf.on.event(*E, param='event')
        def event_fn(**kw): see(kw)
        @kopf.daemon(*E, param='daemon')
        async def daemon_fn(**kw): see(kw)
        """,
    ),
    Case(
        "kwargs-resource",
        """
        @kopf.on.create(*E)
        def fn(resource, **_):
            note([resource.group, resource.version, resource.plural, resource.kind, resource.singular, sorted(resource.shortcuts),
                  resource.namespaced, resource.preferred, sorted(resource.categories), sorted(resource.verbs), sorted(resource.subresources)])
        """,
        (create(), settle()),
    ),
    Case(
        "kwargs-logger",
        """
        @kopf.on.create(*E)
        def fn(logger, **_):
            logger.debug('debug')
            logger.info('hello %s', 'world')
            logger.warning('warning')
            logger.error('error')
            try:
                raise ValueError('boom')
            except ValueError:
                logger.exception('exception')
        """,
        (create(), settle()),
    ),
    Case(
        "index",
        """
        @kopf.index(*E)
        def by_field(spec, name, **_):
            return {spec.get('field'): name}
        @kopf.on.create(*E, labels={'ask': 'yes'})
        @kopf.on.update(*E, labels={'ask': 'yes'})
        def fn(by_field, **_):
            note({key: sorted(values) for key, values in sorted(by_field.items())})
            note([len(by_field), 1 in by_field, 77 in by_field, by_field.get(77)])
        """,
        (
            create("a"),
            create("b"),
            create("c", spec={"field": 2}),
            settle(),
            create("ask", labels={"ask": "yes"}),
            settle(),
            edit("a", field=2),
            settle(),
            edit("ask", field=3),
            settle(),
            delete("b"),
            settle(),
            edit("ask", field=4),
            settle(),
        ),
    ),
    Case(
        "index-of-values",
        """
        @kopf.index(*E)
        def values(name, **_):
            return name
        @kopf.index(*E, id='by-id', labels={'mine': 'yes'})
        def filtered(name, **_):
            return {name: {'x': 1}, 'all': name}
        @kopf.index(*E)
        def nothing(**_):
            return None
        @kopf.on.create(*E, labels={'ask': 'yes'})
        @kopf.on.update(*E, labels={'ask': 'yes'})
        def fn(values, nothing, **kw):
            note([sorted(values[None]), len(values), len(nothing)])
            note({key: sorted(map(str, items)) for key, items in sorted(kw['by-id'].items())})
        """,
        (
            create("a", labels={"mine": "yes"}),
            create("b"),
            settle(),
            create("ask", labels={"ask": "yes"}),
            settle(),
            label("a", mine=None),
            label("b", mine="yes"),
            settle(),
            edit("ask", field=4),
            settle(),
        ),
    ),
    Case(
        "index-errors",
        """
        @kopf.index(*E)
        def failing(spec, name, **_):
            if spec.get('field') == 'bad':
                raise ValueError('bad')
            if spec.get('field') == 'worse':
                raise kopf.PermanentError('worse')
            return {name: spec.get('field')}
        @kopf.on.create(*E, labels={'ask': 'yes'})
        @kopf.on.update(*E, labels={'ask': 'yes'})
        def fn(failing, **_):
            note({key: sorted(map(str, items)) for key, items in sorted(failing.items())})
        """,
        (
            create("a"),
            create("b"),
            settle(),
            edit("a", field="bad"),
            edit("b", field="worse"),
            settle(),
            create("ask", labels={"ask": "yes"}),
            settle(),
        ),
    ),
    Case(
        "index-before-handlers",
        """
        @kopf.index(*E)
        def names(name, **_):
            return {'all': name}
        @kopf.on.create(*E)
        def fn(names, **_):
            note(sorted(names['all']))
        """,
        (settle(),),
        given=(create("a"), create("b"), create("c")),
    ),
    Case(
        "index-after-deletion",
        """
        @kopf.index(*E)
        def names(name, **_):
            return {'all': name}
        @kopf.on.update(*E)
        def fn(names, **_):
            note(sorted(names.get('all', [])))
        """,
        (create("a"), create("b"), settle(), delete("b"), settle(), edit("a", field=2), settle()),
    ),
    Case(
        "event-types",
        """
        @kopf.on.event(*E)
        def fn(event, type, **kw):
            see({**kw, 'event': event})
            note([type, event['type'], sorted(event['object'])]) if type != 'MODIFIED' else None
        """,
        (create("late"), settle(), annotate("late", a="b"), settle(), delete("late"), settle()),
        given=(create(),),
    ),
    Case(
        "event-with-changes",
        """
        @kopf.on.event(*E)
        def event_fn(**kw): see(kw)
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        @kopf.on.delete(*E)
        def change_fn(**kw): see(kw)
        """,
    ),
    Case(
        "event-of-other-kinds",
        """
        @kopf.on.event('configmaps', labels={'mine': 'yes'})
        async def fn(**kw): see(kw)
        """,
        (
            create(kind="configmap", spec={}, labels={"mine": "yes"}, extra={"data": {"a": "b"}}),
            settle(),
            delete(kind="configmap"),
            settle(),
        ),
        kinds=("configmap",),
        watches="configmaps",
    ),
    Case(
        "event-nothing-is-stored",
        """
        @kopf.on.event(*E)
        def fn(**kw): see(kw)
        """,
    ),
    Case(
        "kwargs-retry-and-runtime",
        """
        @kopf.on.create(*E)
        def fn(retry, started, runtime, **_):
            note([retry, started.tzinfo is not None, runtime.total_seconds() >= retry * 0.3])
            if retry < 2:
                raise kopf.TemporaryError('x', delay=0.3)
        """,
        (create(), settle()),
    ),
    Case(
        "kwargs-in-filters",
        """
        def check(**kw):
            count('names') > 1 or note(' '.join(sorted(kw)))
            return True
        @kopf.on.create(*E, when=check)
        def fn(**kw): see(kw)
        """,
        (create(), settle()),
    ),
    Case(
        "kwargs-in-value-filters",
        """
        def check(value, **kw):
            count('names') > 1 or note(' '.join(sorted(kw)))
            return True
        @kopf.on.create(*E, labels={'a': check})
        def fn(**kw): see(kw)
        """,
        (create(), settle()),
    ),
]
