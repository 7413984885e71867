"""K3s's units under a real systemd, on a machine in namespaces: what an owner's files set is in K3s's environment."""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.k3s import layout
from ansible_collections.dgxspark.cluster.tests.support import booted

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="not run: needs root and the lab's image"
    ),
]
# In K3s's place: it says that it is ready, and what its environment is.
STAND_IN = """\
#!/usr/bin/python3
import os, socket, time
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said:
    said.connect(os.environ["NOTIFY_SOCKET"].replace("@", chr(0), 1))
    said.send(b"READY=1")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[booted.Machine]:
    place = tmp_path_factory.mktemp("booted")
    with booted.mounted(place / "image") as image, booted.Machine(10, image, place / "one") as one:
        put(one, layout.BINARY, STAND_IN, "755")
        yield one


def put(machine: booted.Machine, path: str, text: str, mode: str = "644") -> None:
    coded = base64.b64encode(text.encode()).decode()
    machine.run(f"mkdir -p {pathlib.Path(path).parent}; echo {coded} | base64 -d >{path}; chmod {mode} {path}")


@pytest.mark.parametrize(
    ("role", "owners"),
    [
        ("server", "/etc/default/k3s"),
        ("server", "/etc/systemd/system/k3s.service.env"),
        ("agent", "/etc/default/k3s-agent"),
        ("agent", "/etc/systemd/system/k3s-agent.service.env"),
    ],
)
def test_a_proxy_of_the_owner_s_is_in_k3s_s_environment(machine: booted.Machine, role: t.Any, owners: str) -> None:
    unit = layout.UNITS[role]

    def environment() -> list[str]:
        machine.run(f"systemctl daemon-reload; systemctl restart {unit}")
        return machine.run(f"tr '\\0' '\\n' </proc/$(systemctl show -P MainPID {unit})/environ").splitlines()

    put(machine, layout.unit_path(role), layout.unit(role))
    try:
        assert not [line for line in environment() if "PROXY" in line], "no such file, and K3s starts all the same"
        put(machine, owners, "HTTPS_PROXY=http://proxy.example:3128\nNO_PROXY=10.42.0.0/16,.svc\n")
        assert {"HTTPS_PROXY=http://proxy.example:3128", "NO_PROXY=10.42.0.0/16,.svc"} <= set(environment())
    finally:
        machine.run(f"systemctl stop {unit}; rm -f {owners} {layout.unit_path(role)}")
