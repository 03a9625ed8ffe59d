// The official client of JavaScript against the local cluster: what an operator or a script of Node does with it.
// It is started by `test_client_node.py`, which says where the library and the cluster are.
import assert from 'node:assert/strict';
import { once, EventEmitter } from 'node:events';
import test from 'node:test';

const k8s = await import(process.env.CLIENT_NODE);
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const customs = config.makeApiClient(k8s.CustomObjectsApi);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

const namespace = 'default';
const widgets = { group: 'rounds.example.com', version: 'v1', namespace, plural: 'widgets' };
const widgetsPath = '/apis/rounds.example.com/v1/namespaces/default/widgets';
const { JsonPatch, MergePatch, ServerSideApply, StrategicMergePatch } = k8s.PatchStrategy;

const configMap = (name, data, metadata = {}) => (
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace, ...metadata }, data });
const widget = (name, spec = {}, metadata = {}) => (
    { apiVersion: 'rounds.example.com/v1', kind: 'Widget', metadata: { name, namespace, ...metadata }, spec });
const patchBy = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);

async function refused(promise, code, reason) {
    const error = await promise.then(() => assert.fail('it was not refused'), (error) => error);
    const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
    assert.deepEqual([error.code, status.reason], [code, reason]);
    return status;
}

test('built-in resources are created, listed, replaced, patched, deleted', async () => {
    const body = configMap('one', { a: '1' }, { labels: { x: 'y' } });
    const made = await core.createNamespacedConfigMap({ namespace, body });
    assert.ok(made.metadata.creationTimestamp instanceof Date);
    made.data.a = '2';
    const replaced = await core.replaceNamespacedConfigMap({ namespace, name: 'one', body: made });
    assert.deepEqual(replaced.data, { a: '2' });
    await refused(core.replaceNamespacedConfigMap({ namespace, name: 'one', body: made }), 409, 'Conflict');
    await refused(core.createNamespacedConfigMap({ namespace, body: configMap('one') }), 409, 'AlreadyExists');
    const patch = (body, strategy) => core.patchNamespacedConfigMap({ namespace, name: 'one', body }, patchBy(strategy));
    const patched = await patch([{ op: 'add', path: '/data/b', value: '3' }], JsonPatch);
    assert.deepEqual(patched.data, { a: '2', b: '3' });
    const merged = await patch({ data: { a: null } }, MergePatch);
    assert.deepEqual(merged.data, { b: '3' });
    const found = await core.listNamespacedConfigMap({ namespace, labelSelector: 'x=y' });
    assert.deepEqual(found.items.map((item) => item.metadata.name), ['one']);
    const deleted = await core.deleteNamespacedConfigMap({ namespace, name: 'one' });
    assert.equal(deleted.status, 'Success');
    const status = await refused(core.readNamespacedConfigMap({ namespace, name: 'one' }), 404, 'NotFound');
    assert.deepEqual(status.details, { name: 'one', kind: 'configmaps' });
});

test('deployments are patched by the names of their containers, and scaled', async () => {
    const containers = [{ name: 'main', image: 'main:1' }, { name: 'side', image: 'side:1' }];
    await apps.createNamespacedDeployment({ namespace, body: {
        metadata: { name: 'web' },
        spec: { selector: { matchLabels: { app: 'web' } },
                template: { metadata: { labels: { app: 'web' } }, spec: { containers } } } } });
    const change = { spec: { template: { spec: { containers: [{ name: 'side', image: 'side:2' }] } } } };
    const patched = await apps.patchNamespacedDeployment(
        { namespace, name: 'web', body: change }, patchBy(StrategicMergePatch));
    const images = patched.spec.template.spec.containers.map((container) => container.image);
    assert.deepEqual(images.sort(), ['main:1', 'side:2']);
    assert.equal(patched.spec.strategy.rollingUpdate.maxSurge, '25%');
    const scale = await apps.readNamespacedDeploymentScale({ namespace, name: 'web' });
    scale.spec.replicas = 3;
    await apps.replaceNamespacedDeploymentScale({ namespace, name: 'web', body: scale });
    assert.equal((await apps.readNamespacedDeployment({ namespace, name: 'web' })).spec.replicas, 3);
    await apps.deleteNamespacedDeployment({ namespace, name: 'web', propagationPolicy: 'Foreground' });
});

test('custom resources have statuses, schemas, selectors, and pages', async () => {
    for (const color of ['red', 'green', 'red']) {
        const made = await customs.createNamespacedCustomObject({
            ...widgets, body: widget(undefined, { color }, { generateName: 'w-' }) });
        assert.deepEqual(made.spec, { color, size: 1 });
    }
    const red = await customs.listNamespacedCustomObject({ ...widgets, fieldSelector: 'spec.color=red' });
    assert.equal(red.items.length, 2);
    const page = await customs.listNamespacedCustomObject({ ...widgets, limit: 2 });
    const rest = await customs.listNamespacedCustomObject({ ...widgets, limit: 2, _continue: page.metadata.continue });
    assert.deepEqual([page.items.length, rest.items.length, page.metadata.remainingItemCount], [2, 1, 1]);
    const name = red.items[0].metadata.name;
    const body = { spec: { size: 9 }, status: { phase: 'Done' } };
    const changed = await customs.patchNamespacedCustomObjectStatus({ ...widgets, name, body }, patchBy(MergePatch));
    assert.deepEqual([changed.spec.size, changed.status.phase, changed.metadata.generation], [1, 'Done', 1]);
    const wrong = { spec: { size: 99, color: 'pink' } };
    const status = await refused(customs.patchNamespacedCustomObject({ ...widgets, name, body: wrong },
                                                                     patchBy(MergePatch)), 422, 'Invalid');
    assert.deepEqual(status.details.causes.map((cause) => cause.field).sort(), ['spec.color', 'spec.size']);
    await customs.deleteCollectionNamespacedCustomObject(widgets);
    assert.deepEqual((await customs.listNamespacedCustomObject(widgets)).items, []);
});

for (const [kind, make] of [
    ['built-in', (fields) => configMap('applied', fields)],
    ['custom', (fields) => widget('applied', { options: fields })],
]) {
    test(`${kind} resources are applied by several managers`, async () => {
        const values = (object) => object.data ?? object.spec.options;
        const apply = (fields, manager, force = false) => objects.patch(
            make(fields), undefined, undefined, manager, force, ServerSideApply);
        assert.deepEqual(values(await apply({ a: '1', b: '1' }, 'one')), { a: '1', b: '1' });
        assert.deepEqual(values(await apply({ c: '2' }, 'two')), { a: '1', b: '1', c: '2' });
        const status = await refused(apply({ a: '2', c: '2' }, 'two'), 409, 'Conflict');
        assert.match(status.message, /conflict with "one": \.(data|spec\.options)\.a/);
        assert.deepEqual(values(await apply({ a: '2', c: '2' }, 'two', true)), { a: '2', b: '1', c: '2' });
        const applied = await apply({ b: '1' }, 'one');
        assert.deepEqual(values(applied), { a: '2', b: '1', c: '2' });
        assert.deepEqual(applied.metadata.managedFields.map((entry) => [entry.manager, entry.operation]).sort(),
                         [['one', 'Apply'], ['two', 'Apply']]);
        await objects.delete(applied);
        await refused(objects.read(applied), 404, 'NotFound');
    });
}

for (const [kind, path, make] of [
    ['built-in', '/api/v1/namespaces/default/configmaps', (name, value) => configMap(name, { value })],
    ['custom', widgetsPath, (name, value) => widget(name, { options: { value } })],
]) {
    test(`informers of ${kind} resources see every change`, { timeout: 30000 }, async () => {
        const [apiVersion, resource] = [make('x').apiVersion, make('x').kind];
        await objects.create(make('old', '1'));
        const seen = new EventEmitter();
        const informer = k8s.makeInformer(config, path, () => objects.list(apiVersion, resource, namespace));
        for (const verb of ['add', 'update', 'delete']) {
            informer.on(verb, (object) => seen.emit(`${verb} ${object.metadata.name}`, object));
        }
        let isOver = false;  // it tells of the aborted request, too, when it is stopped
        informer.on('error', (error) => isOver || seen.emit('error', error));
        const found = once(seen, 'add old');
        await informer.start();
        await found;
        const change = async (event, action) => {
            const waiting = once(seen, event);
            await action();
            const [object] = await waiting;
            return object.data?.value ?? object.spec.options.value;
        };
        assert.equal(await change('add new', () => objects.create(make('new', '1'))), '1');
        const patch = () => objects.patch(make('new', '2'), undefined, undefined, undefined, undefined, MergePatch);
        assert.equal(await change('update new', patch), '2');
        assert.deepEqual(informer.list(namespace).map((object) => object.metadata.name)
            .filter((name) => name !== 'kube-root-ca.crt').sort(), ['new', 'old']);
        assert.equal(await change('delete new', () => objects.delete(make('new'))), '2');
        isOver = true;
        await informer.stop();
        await objects.delete(make('old'));
    });
}
