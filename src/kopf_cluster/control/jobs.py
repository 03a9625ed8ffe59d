"""
Jobs, which run to completion, and cron jobs, which create them; see "Jobs" and "CronJob".
"""

from __future__ import annotations

import asyncio
import datetime
import zoneinfo
from typing import Final

from kopf_cluster import ages, statuses
from kopf_cluster.control.loops import Objects, key_of, namespace_of, reference_to
from kopf_cluster.control.workload import PODS, Controller, is_active, is_ending, is_ready, labels_of, phase_of
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.kinds.schedules import Schedule
from kopf_cluster.store.watch_cache import Key

_JOBS: Final = "jobs.batch"
_HISTORY: Final = (("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1))
_CONDITIONS: Final = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended"})
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


class Jobs(Controller):
    """Runs as many pods as it takes for the completions."""

    bucket = _JOBS

    def reconcile(self, obj: Obj) -> None:
        if (over := _find_end(obj)) is not None:
            self._expire(obj, over)
            return
        pods, spec = self.owned(PODS, obj), obj["spec"]
        active = [pod for pod in pods if is_active(pod)]
        succeeded = [pod for pod in pods if phase_of(pod) == "Succeeded"]
        failed = [pod for pod in pods if phase_of(pod) == "Failed"]
        limit = 6 if spec.get("backoffLimit") is None else int(spec["backoffLimit"])
        if len(failed) > limit:
            self._finish(
                obj,
                active,
                succeeded,
                failed,
                "Failed",
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            )
            return
        parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
        completions = spec.get("completions")
        needed = 1 if completions is None else int(completions)
        if len(succeeded) >= needed and not (completions is None and active):
            self._finish(
                obj,
                active,
                succeeded,
                failed,
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            )
            return
        if spec.get("suspend"):
            self.delete_pods(active)
            active = []
        else:
            self._start_pods(obj, completions, parallelism, active, succeeded)
        self._tell(
            obj,
            active,
            succeeded,
            failed,
            [self.condition(obj, "Suspended", True, "JobSuspended", "Job suspended")] if spec.get("suspend") else [],
        )

    def _start_pods(
        self,
        obj: Obj,
        completions: int | None,
        parallelism: int,
        active: list[Obj],
        succeeded: list[Obj],
    ) -> None:
        room = parallelism - len(active)
        if completions is not None:
            room = min(room, int(completions) - len(active) - len(succeeded))
        elif succeeded:
            room = 0
        template = obj["spec"]["template"]  # with the labels that the pods are told by
        if obj["spec"].get("completionMode") != "Indexed":
            for _ in range(room):
                self.create_pod(obj, template)
            return
        taken = {labels_of(pod).get(_INDEX) for pod in [*active, *succeeded]}
        free = [index for index in range(int(completions or 0)) if str(index) not in taken]
        for index in free[: max(room, 0)]:
            self.create_pod(
                obj,
                template,
                labels={_INDEX: str(index)},
                annotations={_INDEX: str(index)},
                spec={"hostname": f"{obj['metadata']['name']}-{index}"},
            )

    def _finish(
        self,
        obj: Obj,
        active: list[Obj],
        succeeded: list[Obj],
        failed: list[Obj],
        kind: str,
        reason: str,
        message: str,
    ) -> None:
        self.delete_pods(active)
        target = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        conditions = [self.condition(obj, name, True, reason, message) for name in (target, kind)]
        self._tell(obj, [], succeeded, failed, conditions, ages.now() if kind == "Complete" else None)

    def _tell(
        self,
        obj: Obj,
        active: list[Obj],
        succeeded: list[Obj],
        failed: list[Obj],
        conditions: list[Obj],
        completed: str | None = None,
    ) -> None:
        status = obj.get("status") or {}
        plain = [
            {("lastProbeTime" if field == "lastUpdateTime" else field): value for field, value in item.items()}
            for item in conditions
        ]
        plain = [*(item for item in status.get("conditions") or () if item["type"] not in _CONDITIONS), *plain]
        suspended = bool(obj["spec"].get("suspend"))
        finished = _find_end({"status": {"conditions": plain}}) is not None
        self.set_status(
            obj,
            {
                "startTime": status.get("startTime") or (None if suspended else ages.now()),
                "active": len(active) or None,
                "ready": sum(map(is_ready, active)),
                "terminating": 0 if finished else sum(map(is_ending, self.owned(PODS, obj))),
                "succeeded": len(succeeded) or None,
                "failed": len(failed) or None,
                "uncountedTerminatedPods": {},
                "completionTime": completed,
                "conditions": plain or None,
            },
        )

    def _expire(self, obj: Obj, over: str) -> None:
        """Delete a finished job after its time to live. The time since the end is by the loop's clock."""
        lifetime = obj["spec"].get("ttlSecondsAfterFinished")
        if lifetime is not None:
            self.objects.queue.add_later(float(lifetime), self._remove, key_of(obj), obj["metadata"]["uid"])

    def _remove(self, key: Key, uid: str) -> None:
        obj = self.objects.get(_JOBS, key)
        if obj is not None and obj["metadata"]["uid"] == uid:
            self.objects.delete(_JOBS, key)


def _find_end(job: Obj) -> str | None:
    """Return how the job is over: Complete or Failed; none if it is not."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next(
        (item["type"] for item in conditions if item["type"] in ("Complete", "Failed") and item["status"] == "True"),
        None,
    )


class CronJobs(Controller):
    """Creates jobs by schedules, in the time that begins now and goes on by the loop's clock."""

    bucket = "cronjobs.batch"
    children = (_JOBS,)

    def __init__(self, access: Objects) -> None:
        super().__init__(access)
        self._loop = asyncio.get_running_loop()
        self._begin, self._begin_moment = self._loop.time(), ages.moment()
        self._next: dict[str, tuple[str, datetime.datetime]] = {}

    def _moment(self) -> datetime.datetime:
        return self._begin_moment + datetime.timedelta(seconds=self._loop.time() - self._begin)

    def reconcile(self, obj: Obj) -> None:
        jobs = self.owned(_JOBS, obj)
        self._forget_old(obj, jobs)
        self._tell(obj, jobs)
        try:
            schedule = Schedule(obj["spec"]["schedule"])
            zone = zoneinfo.ZoneInfo(obj["spec"].get("timeZone") or "UTC")
        except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
            raise statuses.bad_request(f"unparseable schedule: {error}") from None
        now = self._moment().astimezone(zone)
        uid, text = obj["metadata"]["uid"], f"{obj['spec']['schedule']} {zone}"
        planned = self._next.get(uid)
        due = planned[1] if planned is not None and planned[0] == text else schedule.after(now)
        if due is not None and due <= now:
            if not obj["spec"].get("suspend"):
                self._create(obj, due, [job for job in jobs if _find_end(job) is None])
            due = schedule.after(now)
        if due is not None:
            self._next[uid] = (text, due)
            delay = max((due - now).total_seconds(), 0.0) + 0.001
            self.objects.queue.add_later(delay, self.reconcile_key, key_of(obj))

    def _create(self, obj: Obj, due: datetime.datetime, running: list[Obj]) -> None:
        policy = obj["spec"].get("concurrencyPolicy") or "Allow"
        if running and policy == "Forbid":
            return
        if policy == "Replace":
            for job in running:
                self.objects.delete(_JOBS, key_of(job))
        template = obj["spec"]["jobTemplate"]
        metadata = template.get("metadata") or {}
        scheduled = due.astimezone(datetime.UTC)
        self.objects.create(
            _JOBS,
            namespace_of(obj),
            {
                "metadata": {
                    "name": f"{obj['metadata']['name']}-{int(due.timestamp()) // 60}",
                    "labels": metadata.get("labels"),
                    "ownerReferences": [reference_to(obj)],
                    "annotations": {
                        **(metadata.get("annotations") or {}),
                        "batch.kubernetes.io/cronjob-scheduled-timestamp": scheduled.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    },
                },
                "spec": template["spec"],
            },
        )
        self.objects.update(
            self.bucket,
            key_of(obj),
            lambda old: {
                **old,
                "status": {**(old.get("status") or {}), "lastScheduleTime": scheduled.strftime("%Y-%m-%dT%H:%M:%SZ")},
            },
            subresource="status",
        )

    def _tell(self, obj: Obj, jobs: list[Obj]) -> None:
        active = [
            {
                "apiVersion": job["apiVersion"],
                "kind": job["kind"],
                "name": job["metadata"]["name"],
                "namespace": namespace_of(job),
                "uid": job["metadata"]["uid"],
            }
            for job in jobs
            if _find_end(job) is None
        ]
        ends = [job["status"]["completionTime"] for job in jobs if _find_end(job) == "Complete"]
        status = obj.get("status") or {}
        successful = max(ends, default=status.get("lastSuccessfulTime"))
        self.set_status(obj, {**status, "active": active or None, "lastSuccessfulTime": successful})

    def _forget_old(self, obj: Obj, jobs: list[Obj]) -> None:
        for end, field, default in _HISTORY:
            finished = sorted((job for job in jobs if _find_end(job) == end), key=lambda job: job["metadata"]["name"])
            limit = obj["spec"].get(field)
            for job in finished[: max(len(finished) - (default if limit is None else int(limit)), 0)]:
                self.objects.delete(_JOBS, key_of(job))
