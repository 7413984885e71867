"""A route that was lost and is set again, beside what networkd and NetworkManager set themselves: real ones, in namespaces."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import time

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.fabric import routes
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import Change
from ansible_collections.dgxspark.cluster.tests.support import booted

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="not run: needs root and the lab's image"
    ),
]

STANZA = "{match: {name: enp9s0}, addresses: [10.100.0.1/24], link-local: [], dhcp4: false, mtu: 9000, renderer: %s}"
AGAIN = {
    "NetworkManager": (
        "nmcli device reapply enp9s0",
        "ip link set enp9s0 down; sleep 1; ip link set enp9s0 up",
        "netplan apply",
    ),
    "networkd": ("ip link set enp9s0 down; sleep 1; ip link set enp9s0 up", "netplan apply"),
}


def shown(machine: booted.Machine) -> list[dict[str, object]]:
    """The routes to the network of the interface, as the kernel has them."""
    told = json.loads(machine.run("ip -j -d -4 route show 10.100.0.0/24"))
    return [{key: each.get(key) for key in ("dev", "prefsrc", "protocol", "scope", "metric")} for each in told]


@pytest.mark.parametrize("renderer", list(AGAIN))
def test_what_is_set_again_is_used_and_the_renderer_s_own_takes_its_place(
    tmp_path: pathlib.Path, renderer: str
) -> None:
    """NetworkManager's own route has a metric, ours has none: both are never there at once."""
    with (
        booted.mounted(tmp_path / "image", renderer.lower()) as image,
        booted.Machine(9, image, tmp_path / "one") as one,
    ):
        text = "network: {version: 2, ethernets: {x: " + STANZA % renderer + "}}"
        one.run(f"umask 77; echo '{text}' >/etc/netplan/90-x.yaml; netplan apply")
        wait(lambda: len(shown(one)) == 1)
        own = shown(one)
        lost = [Change("enp9s0", routes.WHAT, None, "10.100.0.0/24 src 10.100.0.1")]

        def run(words: list[str]) -> tuple[int, str, str]:
            done = one.run(f"{shlex.join(words)} 2>&1; echo; echo $?", check=False).rstrip()
            return int(done.splitlines()[-1]), done.rpartition("\n")[0], ""

        for command in AGAIN[renderer]:
            one.run("ip -4 route del 10.100.0.0/24 dev enp9s0")
            assert shown(one) == []
            routes.restore(run, lost)
            assert shown(one) == [own[0] | {"metric": None}]
            assert "dev enp9s0 src 10.100.0.1" in one.run("ip route get 10.100.0.2")
            one.run(command)
            wait(lambda: shown(one) in (own, [own[0] | {"metric": None}]))
            time.sleep(3)
            assert len(shown(one)) == 1, command
            if renderer == "NetworkManager":
                assert shown(one) == own, command


def wait(holds) -> None:  # type: ignore[no-untyped-def]
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.5)
