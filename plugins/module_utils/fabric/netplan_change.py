# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of netplan's files on the node: work out what to write, validate it, write it, wait for netplan, confirm.

The planned files are first laid out in a scratch folder, read and validated there; their difference from the node's own is the
change, which programs/fabric/rollback.py applies with an automatic rollback.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import typing as t
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.dgxspark.cluster.plugins.module_utils.commands import Run
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import routes
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import turn as turns
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan import (
    DOWN_S,
    HEADER,
    Claim,
    Device,
    interrupts,
    is_ours,
    judge_clashes,
    live_changes,
    merge_devices,
    occupied,
    refuse,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan_live import (
    masked,
    narrowing,
    read_live,
    winners,
)
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.netplan_wait import Waited, settle
from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric.turn import Turn
from ansible_collections.dgxspark.cluster.plugins.module_utils.facts import read_links
from ansible_collections.dgxspark.cluster.plugins.module_utils.oserrors import reason
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric import rollback
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.fabric.rollback import FileImage, Host
from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.locks import Held
from ansible_collections.dgxspark.cluster.plugins.module_utils.source import archive_of
from ansible_collections.dgxspark.cluster.plugins.module_utils.sysfs import Sysfs
from ansible_collections.dgxspark.cluster.plugins.module_utils.system import read_system
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change, CollectionError

ABSORBED = f"{rollback.BASE}/absorbed"
INDEX = f"{ABSORBED}/index.json"
FOLDERS = ("/lib/netplan", "/etc/netplan", "/run/netplan")
LIVE_WAIT = 8.0  # seconds for addresses and MTUs to appear; only then look for who overrides netplan

# netplan reads every scalar as text: PyYAML's conversion to numbers and booleans would corrupt MACs and versions.
_TAKE_OUT = """
import json, sys
import yaml
answers = []
for path, stanzas in json.loads(sys.argv[1]):
    with open(path, "rb") as file:
        tree = yaml.load(file, yaml.BaseLoader)
    network = tree["network"]
    for kind, name in stanzas:
        network[kind].pop(name, None)
        if not network[kind]:
            del network[kind]
    empty = not set(network) - {"version"} and not set(tree) - {"network"}
    answers.append(None if empty else yaml.safe_dump(tree, sort_keys=False, width=120))
print(json.dumps(answers))
"""


@dataclass(frozen=True, slots=True)
class Request:
    """What to apply. `content` is None if the file is to be absent. `timeout` in seconds."""

    path: str
    content: str | None
    transaction: str
    devices: tuple[Device, ...] = ()
    foreign_stanzas: str = "refuse"
    timeout: float = 60
    connection: str | None = None  # SSH_CONNECTION of the process: a new one must confirm
    by: str | None = None  # the requesting run, in words
    waited: Waited | None = None  # what this run has waited for so far


@dataclass
class Outcome:
    """What a step did or would do. `text` has the before and after of each item, for a diff."""

    changes: list[Change] = field(default_factory=list)
    text: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    state: t.Literal[
        "unchanged",
        "pending",
        "confirmed",
        "removed",
        "rolled_back",
        "too_slow",
        "restarted",
        "waiting",
        "queued",
        "stale",
        "unknown",
    ] = "unchanged"
    message: str = ""
    timeout: float | None = None  # seconds of the change's timer
    waiting: Waited | None = None  # with `queued`


Images = dict[str, FileImage]


# --- what would change ----------------------------------------------------------------------------------------------


def plan_change(host: Host, run: Run, sysfs: Sysfs, request: Request, scratch: str) -> tuple[Images, Outcome]:
    """Return the files to write with their planned content, and a description. Writes only to `scratch`.

    Raises CollectionError for clashes, unreadable files, and what netplan rejects.
    """
    outcome = Outcome()
    images = _own_images(host, request, outcome)
    given_back: list[str] = []
    if request.content is None:
        back, given_back = _give_back(host)
        images |= back
    _lay_out(host, scratch, images)
    if request.content is not None:
        images |= _absorb(host, run, sysfs, request, scratch, outcome)
    images = {path: image for path, image in images.items() if not host.image(path).same(image)}
    for path, image in images.items():
        _describe(host, path, image, request, given_back, outcome)
    if images:
        _validate(host, run, scratch)
    if request.content is not None:
        refuse(narrowing(request.devices, host.root))
        links = read_live(run, sysfs)
        live = live_changes(request.devices, links)
        if live and not images:  # applying the same files again would take minutes and change nothing
            refuse(winners(run, request.path, live, links, host.root))
        if (images or live) and (why := masked(run, request.content)):
            raise CollectionError(f"{why} Nothing was changed.")
        outcome.changes += live
        outcome.text += [(f"{c.subject} {c.what}", f"{c.before}\n", f"{c.after}\n") for c in live]
    return images, outcome


def _own_images(host: Host, request: Request, outcome: Outcome) -> Images:
    """Return our file as planned. An owner's file in its place is refused, and not removed."""
    there = (host.image(request.path).data or b"").decode("utf-8", "replace")
    if host.path(request.path).is_symlink() or not is_ours(there):
        found = occupied(request.path)
        if request.content is not None:
            refuse([found])
        outcome.warnings.append(f"{found.subject}: {found.message}")
        return {}
    text = request.content
    if text is not None and not is_ours(text):
        text = HEADER + text
    return {request.path: FileImage(None if text is None else text.encode(), 0o600, os.geteuid(), os.getegid())}


def _index(host: Host) -> dict[str, dict[str, t.Any]]:
    """Return the record of absorbed files, by path; CollectionError if it cannot be read."""
    data = host.image(INDEX).data
    if data is None:
        return {}
    try:
        found = json.loads(data)
        kinds: dict[str, t.Any] = {"copy": str, "mode": int, "uid": int, "gid": int, "left": (str, type(None))}
        whole = bool(found) and all(
            isinstance(each[key], kind) for each in found.values() for key, kind in kinds.items()
        )
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        whole = False
    if not whole:
        raise CollectionError(
            f"{INDEX}, the record of the files whose stanzas were absorbed, is damaged, so nothing was changed. The files as they were "
            f"are in {ABSORBED}: copy them back to /etc/netplan by hand, remove that folder, and run again."
        )
    return t.cast("dict[str, dict[str, t.Any]]", found)


def _give_back(host: Host) -> tuple[Images, list[str]]:
    """Return the images that restore absorbed files."""
    index = _index(host)
    images: Images = {INDEX: FileImage(None)} if index else {}
    for path, entry in index.items():
        kept = host.image(entry["copy"])
        there = host.image(path)
        if kept.data is None:
            raise CollectionError(f"{entry['copy']}, the copy of {path} before its stanzas were absorbed, is gone.")
        if there.sha256 != entry["left"] and there.sha256 != kept.sha256:
            raise CollectionError(
                f"{path} has been changed since its fabric stanzas were absorbed, so it is not overwritten with the "
                f"copy from before ({entry['copy']}). Merge the two by hand and save the result as {path} and as "
                f"{entry['copy']}, then run again."
            )
        images[path] = FileImage(kept.data, entry["mode"], entry["uid"], entry["gid"])
        images[entry["copy"]] = FileImage(None)
    return images, list(index)


def _lay_out(host: Host, scratch: str, images: Images) -> None:
    for folder in FOLDERS:
        target = pathlib.Path(scratch + folder)
        target.mkdir(parents=True, exist_ok=True)
        there = host.path(folder)
        for file in there.glob("*.yaml") if there.is_dir() else ():
            shutil.copyfile(file, target / file.name)
            (target / file.name).chmod(0o600)
    for path, image in images.items():
        if path.startswith(FOLDERS):
            _lay(scratch, path, image)


def _lay(scratch: str, path: str, image: FileImage) -> None:
    file = pathlib.Path(scratch + path)
    if image.data is None:
        file.unlink(missing_ok=True)
    else:
        file.write_bytes(image.data)
        file.chmod(0o600)


def _absorb(host: Host, run: Run, sysfs: Sysfs, request: Request, scratch: str, outcome: Outcome) -> Images:
    """Resolve stanzas to devices; refuse clashes, or remove stanzas of other files if the request says so."""
    files = read_system(run, system_root=scratch)[0].files
    devices = merge_devices(read_devices(sysfs), request.devices)
    verdict = judge_clashes(files, devices, request.path, request.foreign_stanzas)
    refuse(verdict.findings)
    by_file: dict[str, list[Claim]] = {}
    for claim in verdict.stanzas:
        by_file.setdefault(claim.file, []).append(claim)
    if not by_file:
        return {}
    asked = [(scratch + path, [(c.kind, c.id) for c in claims]) for path, claims in by_file.items()]
    rc, out, err = run(["/usr/bin/python3", "-c", _TAKE_OUT, json.dumps(asked)])
    if rc != 0:
        raise CollectionError(f"Stanzas could not be removed from {', '.join(by_file)}: {rollback.plain(err)[-500:]}")
    index = _index(host)
    images: Images = {}
    for (path, claims), text in zip(by_file.items(), json.loads(out), strict=True):
        was = host.image(path)
        names = ", ".join(f"{c.kind}.{c.id}" for c in claims)
        copy = f"{ABSORBED}/{pathlib.PurePath(path).name}"
        if path in index:
            outcome.warnings.append(f"{path} was absorbed before and is back; its copy {copy} is replaced.")
        note = f"# {names}: absorbed by dgxspark.cluster.netplan_vf; the file as it was is {copy}.\n"
        left = replace_data(was, None if text is None else (note + text).encode())
        images[path] = left
        images[copy] = FileImage(was.data, 0o600, os.geteuid(), os.getegid())
        index[path] = {"copy": copy, "mode": was.mode, "uid": was.uid, "gid": was.gid, "left": left.sha256}
        _lay(scratch, path, left)
    data = json.dumps(index, indent=1, sort_keys=True).encode()
    images[INDEX] = FileImage(data, 0o600, os.geteuid(), os.getegid())
    return images


def replace_data(image: FileImage, data: bytes | None) -> FileImage:
    """Return an image with other content."""
    return FileImage(data, image.mode, image.uid, image.gid)


def _describe(
    host: Host, path: str, image: FileImage, request: Request, given_back: Sequence[str], outcome: Outcome
) -> None:
    """Describe the change of a file. Other files may contain passwords: their text is not shown."""
    there = host.image(path)
    if path == request.path:
        texts = ((i.data or b"").decode("utf-8", "replace") for i in (there, image))
        outcome.text.append((path, *t.cast("tuple[str, str]", tuple(texts))))
        what = "mode or owner" if there.sha256 == image.sha256 else "file"
        before, after = (i.sha256 and f"sha256 {i.sha256[:12]}, mode {i.mode:04o}" for i in (there, image))
        outcome.changes.append(Change(path, what, before, after))
    elif path.startswith(FOLDERS):
        done = "restored" if path in given_back else "fabric stanzas absorbed"
        outcome.text.append((path, "as it was\n" if path not in given_back else "absorbed\n", f"{done}\n"))
        outcome.changes.append(Change(path, "file of others", None, done))


def _validate(host: Host, run: Run, scratch: str) -> None:
    rc, out, err = run([*host.generator(), "--root-dir", scratch])
    if rc == rollback.NOT_FOUND:
        raise CollectionError("netplan is not installed on this node, or not on the PATH. Install netplan.io.")
    if rc != 0:
        said = rollback.plain((err or out).replace(scratch, ""))
        raise CollectionError(f"netplan does not accept the files, so none was written. It says: {said}")


# --- what is there --------------------------------------------------------------------------------------------------


def read_devices(sysfs: Sysfs) -> list[Device]:
    """Return the host's network devices that are backed by hardware (or a hypervisor)."""
    return [
        Device(name, sysfs.read("class/net", name, "address"), sysfs.target("class/net", name, "device/driver"))
        for name in sysfs.names("class/net")
        if sysfs.target("class/net", name, "device")
    ]


# --- begin and confirm ----------------------------------------------------------------------------------------------


def begin(
    host: Host, run: Run, sysfs: Sysfs, request: Request, scratch: str, *, check_mode: bool, turn: Turn | None = None
) -> Outcome:
    """Write the files under a rollback timer, let netplan apply them, and wait until netplan is done.

    The outcome is `queued` if another run is at work: call it again with that `waited`. Raises CollectionError with nothing
    changed, or with everything rolled back.
    """
    early = Outcome()
    if check_mode:
        if rollback.pending(host):
            other = rollback.who(host.document("journal.json"))
            early.warnings.append(f"An unconfirmed change is pending ({other}); a real run first waits for it to end.")
        outcome = plan_change(host, run, sysfs, request, scratch)[1]
        outcome.changes += _left_behind(host, request)
        outcome.warnings += early.warnings
        return outcome
    turn = turn or Turn(None, host.clock, host.root)
    turn.enter()
    until = host.clock() + turns.WAIT
    while True:
        try:
            if waiting := settle(host, early.warnings, request.waited, until):
                return Outcome(state="queued", waiting=waiting)
            with host.lock(request.by, turns.WAIT):
                if rollback.pending(host):
                    continue  # another run was first
                outcome = _start_if_needed(host, run, sysfs, request, scratch, turn)
                break
        except Held as exc:
            return Outcome(state="queued", waiting=Waited("", exc.who, host.clock()))
    outcome.warnings += early.warnings
    if outcome.timeout is not None:
        _await_apply(host, replace(request, timeout=outcome.timeout))
    return outcome


def _start_if_needed(host: Host, run: Run, sysfs: Sysfs, request: Request, scratch: str, turn: Turn) -> Outcome:
    """Plan with the lock held, and start what differs; the outcome is then `pending`."""
    if rollback.ended(host, request.transaction).get("state") == "never":
        raise CollectionError("The run that requested this change abandoned it, so nothing was changed.")
    images, outcome = plan_change(host, run, sysfs, request, scratch)
    if not outcome.changes and not images:
        outcome.changes = _left_behind(host, request)
        if outcome.changes:
            rollback.forget(host)
            outcome.state = "removed"
        return outcome
    turn.check()
    if not images and routes.alone(outcome.changes):
        routes.restore(run, outcome.changes)
        outcome.state = "confirmed"
        return outcome
    told = len(outcome.warnings)
    request = _patient(host, run, request, outcome)
    # What netplan takes down may break the connection over which this answer goes; the summary is asked for over a new one.
    summary = "; ".join(f"{c.subject}: {c.what}" for c in outcome.changes)
    _start(host, request, images, ". ".join((summary, *outcome.warnings[told:])))
    outcome.state, outcome.timeout = "pending", request.timeout
    return outcome


def _patient(host: Host, run: Run, request: Request, outcome: Outcome) -> Request:
    """Return the request with a longer timer if netplan takes down the interface over which it came."""
    server = [*(request.connection or "").split(), "", "", ""][2].partition("%")[0]
    for name, link in read_links(run).items() if server else ():
        claim = interrupts(read_system(run, system_root=host.root)[0], name) if _has(link, server) else None
        if claim:
            longer = replace(request, timeout=request.timeout + DOWN_S)
            outcome.warnings.append(
                f"`netplan apply` takes {name}, over which this run reaches the node, down for up to {DOWN_S} s, because of the "
                f"{claim}. The node rolls back after {longer.timeout:g} s instead of {request.timeout:g} s."
            )
            return longer
    return request


def _has(link: t.Mapping[str, t.Any], address: str) -> bool:
    return any(each.get("local") == address for each in link.get("addr_info", ()))


def _left_behind(host: Host, request: Request) -> list[Change]:
    """Return what an interrupted run left over, if nothing of ours should exist."""
    if request.content is not None:
        return []
    return [Change(path, "left by an interrupted run", "there", None) for path in rollback.leftovers(host)]


def _start(host: Host, request: Request, images: Images, summary: str) -> None:
    identity = request.transaction
    deadline = host.clock() + request.timeout
    program, asked = archive_of(rollback), rollback.ChangeRequest(summary, request.connection, request.by)
    try:
        rollback.prepare(host, identity, images, program, deadline, asked)
    except OSError as exc:
        raise CollectionError(
            f"The change could not be recorded, so nothing was changed: {exc.filename}: {reason(exc)}"
        ) from exc
    rc, out, err = host.command(rollback.guard_command(identity))
    if rc != 0:
        rollback.forget(host)
        raise CollectionError(
            f"The change's guard could not be started, so nothing was changed: {(err or out).strip()}"
        )


def _undo(host: Host, identity: str, why: str) -> t.NoReturn:
    last = rollback.roll_back(host, identity, why)
    after = "The node is back on its old configuration."
    if last and last["failed"]:
        said = "; ".join(last["failed"])
        after = f"The old files are back, but netplan did not apply them either: {said}"
        if rollback.pending(host):
            after = f"The rollback failed too: {said}"
    raise CollectionError(f"{why} {after}")


def _failed(rc: int, said: str) -> str:
    if rc < 0:  # netplan did not run
        path = said.partition(": ")[0]
        return (
            said if rc == rollback.NOT_RUN else f"{path} could not be written: {reason(OSError(-rc, os.strerror(-rc)))}"
        )
    return f"netplan apply failed with exit status {rc}: {rollback.plain(said)}"


def _await_apply(host: Host, request: Request) -> None:
    """Wait until netplan has applied the files; if the connection breaks, this process may die."""
    identity = request.transaction
    until = host.clock() + request.timeout
    while rollback.pending(host) == identity and host.clock() < until:
        if said := rollback.result(host, identity):
            if said[0] != 0:
                with host.lock():
                    _undo(host, identity, _failed(*said))
            return
        host.sleep(0.2)


def confirm(host: Host, request: Request, run: Run | None = None, sysfs: Sysfs | None = None) -> Outcome:
    """Keep a change, because a connection that was made after netplan finished has reached the node.

    It does not wait for netplan: a connection from before netplan finished proves nothing. With `run` and `sysfs` it then checks
    the interfaces. Raises CollectionError that names what won if one lacks what the file gives it.
    """
    try:
        with host.lock():
            outcome = _confirm(host, request)
    except Held:
        return Outcome(state="waiting")  # the guard is rolling back right now, which takes netplan a while
    if outcome.state == "confirmed" and run and sysfs and request.content is not None:
        _look_again(host, run, sysfs, request)
    return outcome


def _look_again(host: Host, run: Run, sysfs: Sysfs, request: Request) -> None:
    """Wait a little until the interfaces match the plan; if something else wins, name it."""
    until = host.clock() + LIVE_WAIT
    while True:
        links = read_live(run, sysfs)
        live = live_changes(request.devices, links)
        late = host.clock() > until
        if live and late and routes.alone(live):
            routes.restore(run, live)
            return
        found = winners(run, request.path, live, links, host.root) if live and late else []
        why = masked(run, request.content) if live and late else None
        if found or why:
            told = "\n".join([*map(str, found), *([why] if why else [])])
            raise CollectionError(
                f"{request.path} is written and confirmed, but has no effect:\n{told}", findings=found
            )
        if late or not live:
            return
        host.sleep(1)


def _confirm(host: Host, request: Request) -> Outcome:
    identity = request.transaction
    if rollback.pending(host) != identity:
        return _ended(host, identity)
    said = rollback.result(host, identity)
    if said is None:
        return Outcome(state="waiting")
    try:
        journal = rollback.recorded(host, identity)
        if request.connection and journal.connection == request.connection:
            return Outcome(state="stale")
        if said[0] != 0:
            _undo(host, identity, _failed(*said))
        wrong = rollback.unwritten(host, identity)
    except rollback.Damaged as exc:
        raise CollectionError(f"The change could not be confirmed: {exc}") from exc
    if wrong:
        _undo(host, identity, f"{', '.join(wrong)} was changed by someone else in the meantime.")
    rollback.note(host, identity, "confirmed", summary=journal.summary)
    rollback.forget(host)  # the guard notices and ends
    return _confirmed(journal.summary)


def _confirmed(summary: str) -> Outcome:
    """Return the outcome of a confirmed change, with what its summary warns of after the changes: see _start_if_needed."""
    return Outcome(state="confirmed", warnings=summary.split(". ", 1)[1:])


def _ended(host: Host, identity: str) -> Outcome:
    """Return how a change that is not pending ended. One that never began is barred from beginning: see begin()."""
    last = rollback.ended(host, identity)
    if last.get("state") == "confirmed":  # the earlier answer was lost in transit
        return _confirmed(last["summary"])
    if last.get("state") != "rolled_back":
        rollback.note(host, identity, "never")
        message = "The node does not know this change, and will not start it."
        if rollback.pending(host):
            message += f" Another run is active there: {rollback.who(host.document('journal.json'))}."
        return Outcome(state="unknown", message=message)
    failed = f" The rollback is incomplete: {'; '.join(last['failed'])}" if last["failed"] else ""
    state: t.Any = "rolled_back" if last["applied"] else "too_slow"
    return Outcome(state="restarted" if last.get("why") == "boot" else state, message=f"{last['summary']}.{failed}")
