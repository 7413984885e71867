# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A case's steps as the owner would run them: each runs one of the collection's playbooks in a process of its own.

So a step starts without facts from the one before it, may fail or lose a node, and is not reached by a Ctrl-C at the terminal.
Its output is kept with the case.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import shutil
import typing as t
from dataclasses import dataclass

from ansible_collections.dgxspark.cluster.plugins.module_utils.foreign import from_json
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.files import text_lines
from ansible_collections.dgxspark.cluster.plugins.module_utils.nccl.log import Reader
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import to_plain
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import children, outcome
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bench import metrics
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.cases import Case, Matrix
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.matrix.driver import Step

Plain = dict[str, t.Any]
BEFORE = "before.json"
_DAY_S = 86400.0
_SEEDS_APART = 100_000  # a request's seed is its workload's plus its number: keeps the seeds of two repeats apart


@dataclass(frozen=True, slots=True)
class Ran:
    """How a playbook ended: its exit status, why it failed if it did, and whether it was stopped by a timeout.

    lost: the hosts that did not answer; waited: one of its tasks waited in vain for ranks to be ready; not_gone: or for old ones to
    be gone.
    """

    status: int
    message: str
    timed_out: bool = False
    lost: tuple[str, ...] = ()
    waited: bool = False
    not_gone: bool = False


@dataclass(frozen=True, slots=True)
class Playbooks:
    """options: of ansible-playbook (inventory, limit, variables); lock: the journal's, which a step holds while it runs.

    engines: how their logs report memory and acceptance (`knowledge/metrics`).

    A killed run leaves its step running; the next run waits for it on the lock.
    """

    root: pathlib.Path
    matrix: Matrix
    options: t.Sequence[str]
    platform: t.Mapping[str, str]
    lock: int
    engines: t.Mapping[str, Plain]
    program: t.Sequence[str] = children.PROGRAM

    def play(self, name: str, folder: pathlib.Path, log: str, variables: Plain, limit_s: float = _DAY_S) -> Ran:
        """Run a playbook of the collection; its output goes to a compressed file in the folder."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        given, printed = folder / f"{log}.vars.json", folder / f"{log}.log"
        given.write_text(json.dumps(variables, indent=2), encoding="utf-8")
        command = [*self.program, *self.options, "-e", f"@{given}", f"dgxspark.cluster.{name}"]
        noted = folder / f"{log}.outcome"
        noted.unlink(missing_ok=True)
        form = {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", **outcome.environment(noted)}
        status, late = children.run(command, printed, limit_s, form, self.lock)
        said = printed.read_text(encoding="utf-8", errors="replace").splitlines()
        _compress(printed)
        found = outcome.read(noted)
        noted.unlink(missing_ok=True)
        last = next((f": {line.strip()}" for line in reversed(said) if line.strip()), "")
        message = found.message or f"it ended with status {status}{last}"
        return Ran(status, message, late, found.lost, found.timed_out, found.not_gone)

    def save(self) -> Step:
        """Save what serves now."""
        return self._ranks("keep", self.root, "keep", k8s_dgx_kept_file=str(self.root / BEFORE))

    def restore(self) -> Step:
        """Serve what was saved, if anything was."""
        if not (self.root / BEFORE).exists():
            return Step(True)
        return self._ranks("restore", self.root, "restore", k8s_dgx_kept_file=str(self.root / BEFORE))

    def _ranks(self, what: str, folder: pathlib.Path, log: str, **variables: t.Any) -> Step:
        ran = self.play("ranks", folder, log, {"ranks_do": what, **variables})
        return Step(True) if ran.status == 0 else Step(False, ran.message, ran.timed_out, ran.lost)

    def switch(self, case: Case, folder: pathlib.Path) -> Step:
        """Serve the case. One that does not come up is left as it is, because its logs are needed."""
        variables = {
            "k8s_dgx_state": "present",
            "k8s_dgx_model_profile": self.matrix.profile,
            "k8s_dgx_overrides": dict(case.overrides),
            "k8s_dgx_on_failure": "keep",
        }
        ran = self.play("serve", folder, "switch", variables)
        if ran.status == 0:
            return Step(True)
        return Step(False, ran.message, ran.timed_out or ran.waited, ran.lost, {"not_gone": ran.not_gone})

    def verify(self, case: Case, folder: pathlib.Path) -> Step:
        """Verify the fabric quickly, and that the ranks' logs show its use."""
        place = folder / "verify.json"
        variables = {
            "dgxspark_verify_mode": "quick",
            "dgxspark_verify_run": ["pod"],
            "dgxspark_report_file": str(place),
        }
        ran = self.play("verify", folder, "verify", variables, 3600.0)
        report = _json(place)
        unseen = tuple(host["name"] for host in report.get("hosts", ()) if host["status"] == "not seen")
        if ran.status == 0 and not unseen:
            return Step(True)
        pod = next((step["status"] for step in report.get("steps", ()) if step["id"] == "pod"), "")
        return Step(False, ran.message, ran.timed_out, unseen or ran.lost, {"socket": pod == "fail"})

    def bench(self, case: Case, folder: pathlib.Path, run: int) -> Step:
        """Measure, and keep every answer. A repeat uses a seed of its own, so that no cache knows its prompts."""
        place = folder / f"bench-{run}.json"
        variables: Plain = {"dgxspark_report_file": str(place), "dgxspark_bench_keep": str(folder / f"answers-{run}")}
        if self.matrix.workloads:
            variables["dgxspark_bench_workloads"] = list(self.matrix.workloads)
        if self.matrix.levels:
            variables["dgxspark_bench_levels"] = list(self.matrix.levels)
        if run > 1:
            variables["dgxspark_bench_seed"] = run * _SEEDS_APART
        ran = self.play("bench", folder, f"bench-{run}", variables)
        report = _json(place)
        if place.exists():
            _compress(place)
        return Step(
            ran.status == 0,
            "" if ran.status == 0 else ran.message,
            ran.timed_out,
            ran.lost,
            {"report": report} if report else {},
        )

    def collect(self, case: Case, folder: pathlib.Path) -> Step:
        """Fetch the ranks' logs, and what is known of pods and platform."""
        place = folder / "logs"
        step = self._ranks("logs", folder, "logs", k8s_dgx_logs_to=str(place))
        # A rank's log from before its restart comes first: it holds the reason.
        names = (
            sorted(place.glob("*.log"), key=lambda path: (".previous" not in path.name, path.name))
            if place.is_dir()
            else []
        )
        logs = {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in names}
        pods = _json(place / "pods.json") or []
        for path in place.iterdir() if place.is_dir() else ():
            _compress(path)
        data: Plain = {"logs": logs, "platform": {**self.platform, **_nccl(logs)}, **told_of(logs, self.engines)}
        return Step(step.ok, step.message, step.timed_out, step.lost, data | facts_of(t.cast(t.Any, pods)))


def told_of(logs: t.Mapping[str, str], engines: t.Mapping[str, Plain]) -> Plain:
    """Return the memory (of the fullest rank, in GiB) and acceptance reported in the ranks' logs."""
    seen = [metrics.memory_of_log(text, engines) for text in logs.values()]
    memory = {
        key: max(each[key] for each in seen if key in each)
        for key in ("weights_gib", "kv_gib")
        if any(key in s for s in seen)
    }
    accepted = metrics.acceptance_of_log("\n".join(logs.values()), engines)
    return {"memory": memory, "acceptance": to_plain(accepted) if accepted else None}


def facts_of(pods: t.Sequence[t.Mapping[str, t.Any]]) -> Plain:
    """Return each pod's container restarts, and the digest of the running image."""
    restarts: dict[str, int] = {}
    digests = set()
    for pod in pods:
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            name = pod["metadata"]["name"]
            ended = bool((status.get("state") or {}).get("terminated"))
            restarts[name] = max(restarts.get(name, 0), int(status.get("restartCount", 0)) + ended)
            digests |= set(re.findall(r"sha256:[0-9a-f]{64}", str(status.get("imageID", ""))))
    return {"restarts": restarts, "digest": digests.pop() if len(digests) == 1 else None}


def _nccl(logs: t.Mapping[str, str]) -> dict[str, str]:
    reader = Reader([])
    for name, text in logs.items():
        reader.read(name, text_lines(text))
    versions = sorted(reader.finish().versions)
    return {"nccl": ", ".join(versions)} if versions else {}


def _json(path: pathlib.Path) -> t.Any:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _compress(path: pathlib.Path) -> None:
    with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    path.unlink()
