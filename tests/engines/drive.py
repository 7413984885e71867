"""Run cases on this machine's GPUs, several at once, and write down what engine, supervisors and plan said.

Usage: drive.py MODELS OUT SECONDS NAME…: NAME is a case's id, or a pattern such as `set-*`; they start in that order. OUT gets a
line of results.jsonl for each case as it ends, and its logs in logs.zip, so that a run that is cut short loses nothing else.
What the engine needs beside the plan's own environment comes from DGXSPARK_ENGINES_ENV, a JSON object.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import typing as t
import urllib.request
import zipfile

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.tests.engines import vllm_cases
from ansible_collections.dgxspark.cluster.tests.engines.boxed import until
from ansible_collections.dgxspark.cluster.tests.engines.cases import CASES as SGLANG_CASES
from ansible_collections.dgxspark.cluster.tests.engines.cases import WHOLE, Trial
from ansible_collections.dgxspark.cluster.tests.engines.groups import PORT, Group, Plain

SUM = {
    "model": "", "messages": [{"role": "user", "content": "What is 7 + 8?"}], "max_tokens": 16, "temperature": 0,
}  # fmt: skip
CASES = [*SGLANG_CASES, *vllm_cases.CASES]
# What an engine says of itself: pages of JSON by name, and others. vLLM has the first in its developer mode alone (groups.py).
PAGES: dict[str, dict[str, str]] = {
    "sglang": {"server_info": "/server_info", "models": "/v1/models", "model_info": "/get_model_info"},
    "vllm": {"server_info": "/server_info?config_format=json", "models": "/v1/models", "version": "/version"},
}
OTHERS = {
    "sglang": ("/get_server_info", "/health", "/health_generate", "/metrics"),
    "vllm": ("/health", "/load", "/metrics"),
}
RUNNING = re.compile(r"^vllm:num_requests_running\{[^}]*\} ([\d.]+)", re.MULTILINE)


def gpus() -> int:
    """Return how many GPUs this machine has."""
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True, text=True)
    return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0


class Machine:
    """The GPUs, in shares: a trial takes some of one, or of each."""

    def __init__(self, gpus: int) -> None:
        self.free = dict.fromkeys(range(gpus), WHOLE)
        self.changed = threading.Condition()

    def take(self, ranks: int, shares: int) -> list[int]:
        """Wait for so many GPUs with so many free shares each."""
        with self.changed:
            while True:
                able = sorted((gpu for gpu in self.free if self.free[gpu] >= shares), key=lambda gpu: -self.free[gpu])
                if len(able) >= ranks:
                    for gpu in (taken := sorted(able[:ranks])):
                        self.free[gpu] -= shares
                    return taken
                self.changed.wait()

    def give(self, gpus: t.Sequence[int], shares: int) -> None:
        """Give them back."""
        with self.changed:
            for gpu in gpus:
                self.free[gpu] += shares
            self.changed.notify_all()


class Load:
    """Requests that keep an engine at prefill or at decode until `over`."""

    def __init__(self, group: Group, kind: str) -> None:
        self.group, self.over = group, threading.Event()
        words = "What is 7 + 8? " * 180 if kind == "prefill" else "What is 7 + 8?"
        self.body = {"model": group.plan["model"], "prompt": words, "max_tokens": 1 if kind == "prefill" else 1800,
                     "temperature": 0, "ignore_eos": True}  # fmt: skip
        self.answers: list[tuple[float, int, str]] = []
        self.threads = [threading.Thread(target=self._ask, args=(number,), daemon=True) for number in range(4)]
        for thread in self.threads:
            thread.start()

    def _ask(self, number: int) -> None:
        turn = 0
        while not self.over.is_set():
            body = {**self.body, "prompt": f"{number} {turn} {self.body['prompt']}"}
            status, text = self.group.ask("/v1/completions", body, 240)
            self.answers.append((time.monotonic(), status, text[:300]))
            turn += 1
            if status != 200:
                time.sleep(0.5)


def told(group: Group) -> Plain:
    """Return what the API says of itself."""
    found: Plain = {}
    engine = group.case.engine[0]
    for name, path in PAGES[engine].items():
        status, text = group.ask(path)
        with contextlib.suppress(ValueError):
            text = json.loads(text)
        found[name] = text if status == 200 else {"status": status, "text": text[:500]}
    for path in OTHERS[engine]:
        status, text = group.ask(path)
        found[path] = {"status": status, "text": text if path == "/metrics" else text[:200]}
    for path in ("/v1/models", "/server_info"):  # without the key
        found[f"open {path}"] = group.head.fetch(urllib.request.Request(f"http://127.0.0.1:{PORT}{path}"), 10)[0]
    return found


def asked(group: Group, trial: Trial) -> Plain:
    """Ask it something, if it has words."""
    if trial.case.dummy and trial.case.engine[0] == "vllm":
        ids = {"model": group.plan["model"], "prompt": list(range(10, 74)), "max_tokens": 48, "temperature": 0,
               "ignore_eos": True, "return_token_ids": True}  # fmt: skip
        status, text = group.ask("/v1/completions", ids, 120)
    elif trial.case.dummy:
        ids = {
            "input_ids": list(range(10, 74)),
            "sampling_params": {"max_new_tokens": 48, "temperature": 0, "ignore_eos": True},
        }
        status, text = group.ask("/generate", ids, 120)
    else:
        status, text = group.ask("/v1/chat/completions", {**SUM, "model": group.plan["model"]}, 120)
    return {"status": status, "text": text[:2000]}


def victim(group: Group, rank: int, title: str) -> int:
    """Return the process of a rank with this title."""
    found = until(
        lambda: [pid for pid, name in group.pods[rank].processes().items() if re.search(title, name)], 20, 0.02
    )
    if not found:
        raise RuntimeError(f"no process {title} in rank {rank}: {group.pods[rank].processes()}")
    return int(found[0])


def busy(group: Group, kind: str) -> bool:
    """Whether the engine works at what was asked: SGLang's log says so, of vLLM the metrics do."""
    if group.case.engine[0] == "vllm":
        return any(float(each) for each in RUNNING.findall(group.ask("/metrics")[1]))
    return bool(re.search(rf"{kind.capitalize()} batch", group.log(0)))


def struck(group: Group, trial: Trial, note: t.Callable[[str], None]) -> Plain:
    """Bring a rank to the moment, strike it, and see what follows."""
    strike = trial.strike
    assert strike
    load = None
    if strike.when in ("decode", "prefill"):
        state = group.wait(trial.case.seconds)
        if state != "ready":
            return {"state": state}
        note("ready")
        load = Load(group, strike.when)
        until(lambda: busy(group, strike.when), 30, 0.02)
        time.sleep(2.0 if strike.when == "decode" else 0.5)
    else:
        seen = until(lambda: re.search(strike.when, group.log(strike.rank)), trial.case.seconds, 0.01)
        if not seen:
            return {"state": f"never saw {strike.when}"}
    pid = victim(group, strike.rank, strike.title)
    os.kill(pid, strike.signal)
    at = time.monotonic()
    note(f"struck {pid}")
    ended = {}
    for number, pod in enumerate(group.pods):
        found = until(functools.partial(pod.ended, at), max(strike.patience - (time.monotonic() - at), 1))
        ended[number] = [round(found[0] - at, 1), found[1], pod.last_word()] if found else None
    if strike.signal == signal.SIGSTOP:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    if load:
        load.over.set()
    again = None
    if any(ended.values()) and strike.again:
        # A pod's own start resets what `wait` looks at: from now on.
        state = group.wait(trial.case.seconds, since=time.monotonic())
        again = [round(time.monotonic() - at, 1), state, asked(group, trial)]
    answers = [[round(when - at, 2), status, text] for when, status, text in load.answers if when > at] if load else []
    return {"state": "struck", "ended": ended, "again": again, "answers": answers[:8]}


def stopped(group: Group) -> Plain:
    """End all ranks as the kubelet does when a pod is deleted."""
    at = time.monotonic()
    for pod in group.pods:
        pod._over.set()
    for pod in group.pods:
        pod._thread.join(90)
    return {
        str(number): [round(found[0] - at, 1), found[1], pod.last_word()] if (found := pod.ended(at - 1)) else None
        for number, pod in enumerate(group.pods)
    }


def kept(home: pathlib.Path) -> dict[str, int]:
    """Return what the engine wrote below its home, which ends with the container: bytes by folder."""
    sizes: dict[str, int] = {}
    for place in home.rglob("*"):
        parts = place.relative_to(home).parts
        if parts[0] not in ("dgxspark", "cache", "run", "dev", "hosts", "log") and place.is_file():
            sizes["/".join(parts[:3])] = sizes.get("/".join(parts[:3]), 0) + place.stat().st_size
    return sizes


def run(trial: Trial, models: pathlib.Path, node: pathlib.Path, gpus: t.Sequence[int], logs: pathlib.Path) -> Plain:
    """Run one trial."""
    case = trial.case
    began = time.monotonic()
    more = json.loads(os.environ.get("DGXSPARK_ENGINES_ENV", "{}"))
    found: Plain = {"id": case.id, "gpus": list(gpus), "events": []}

    def note(what: str) -> None:
        found["events"].append([round(time.monotonic() - began, 1), what])

    with tempfile.TemporaryDirectory(prefix="pods-", ignore_cleanup_errors=True) as place:
        group = None
        try:
            group = Group(case, models, pathlib.Path(place), node, gpus, more)
            found["plan"] = {key: group.plan[key] for key in ("verdict", "findings", "speculation", "added")}
            found["argv"] = [rank["argv"] for rank in group.plan["ranks"]]
            found["environment"] = [rank["env"] for rank in group.plan["ranks"]]
            group.start()
            note("started")
            if trial.strike:
                found |= struck(group, trial, note)
            else:
                found["state"] = group.wait(case.seconds)
                note(found["state"])
                if found["state"] == "ready":
                    found["told"] = told(group)
                    found["asked"] = asked(group, trial)
                    for step in trial.steps:
                        found[step.__name__] = step(group)
                elif not found["state"].startswith("late"):
                    found["last_words"] = [pod.last_word() for pod in group.pods]
            found["home"] = [kept(pod.root) for pod in group.pods]
            found["stopped"] = stopped(group)
        except CollectionError as exc:
            found |= {"state": "not planned", "error": str(exc)}
        except Exception:
            found |= {"state": "failed", "error": traceback.format_exc()}
        finally:
            if group:
                found["pods"] = [
                    [[round(at - group.started, 1), what] for at, what in pod.events] for pod in group.pods
                ]
                group.close(logs)
    found["seconds"] = round(time.monotonic() - began, 1)
    return found


def main(models: str, out: str, seconds: str, *wanted: str) -> int:
    """Run all wanted trials, as long as there is time."""
    ends = time.monotonic() + float(seconds)
    folder = pathlib.Path(out)
    node = pathlib.Path(os.environ.get("DGXSPARK_ENGINES_NODE", "/tmp/node"))
    chosen = {each.case.id: each for name in wanted for each in CASES if fnmatch.fnmatchcase(each.case.id, name)}
    machine, lock = Machine(gpus()), threading.Lock()
    waiting: queue.Queue[Trial] = queue.Queue()
    for trial in chosen.values():
        waiting.put(trial)

    def work(trial: Trial, taken: t.Sequence[int]) -> None:
        logs = pathlib.Path(tempfile.mkdtemp(prefix="logs-"))
        try:
            found = run(trial, pathlib.Path(models), node, taken, logs)
            with lock:
                with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
                with zipfile.ZipFile(folder / "logs.zip", "a", zipfile.ZIP_DEFLATED) as packed:
                    for log in sorted(logs.iterdir()):
                        packed.writestr(
                            f"{trial.case.id}.{log.name}", _lean(log.read_text(encoding="utf-8", errors="replace"))
                        )
            print(
                f"{found['seconds']:6.1f} s {trial.case.id}: {found['state']} {str(found.get('error', ''))[-300:]}",
                flush=True,
            )
        finally:
            shutil.rmtree(logs, ignore_errors=True)
            machine.give(taken, trial.shares)

    threads = []
    while not waiting.empty():
        trial = waiting.get()
        taken = machine.take(trial.case.nodes, trial.shares)
        if time.monotonic() + trial.least > ends:
            print(f"no time left: {trial.case.id}", flush=True)
            machine.give(taken, trial.shares)
            continue
        threads.append(threading.Thread(target=work, args=(trial, taken), daemon=True))
        threads[-1].start()
        time.sleep(0.2)
    for thread in threads:
        thread.join(max(ends - time.monotonic(), 1))
    print("all done" if not any(thread.is_alive() for thread in threads) else "out of time", flush=True)
    os._exit(0)


def _lean(text: str) -> str:
    """Return a log without what progress bars overwrote."""
    return "\n".join(line.rpartition("\r")[2] for line in text.splitlines()) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
