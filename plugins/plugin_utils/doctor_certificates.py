# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor finds in certificates: K3s's on the nodes, the kubeconfig's, and the gateway's, as it shows it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import pathlib
import socket
import ssl
import typing as t

import yaml

from ansible_collections.dgxspark.cluster.plugins.module_utils import certificates
from ansible_collections.dgxspark.cluster.plugins.module_utils.health import Health
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import signatures
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.diagnosis import Diagnosis


class Known(t.Protocol):
    """What is known of the site: the time, each node's health, and when the other certificates end (seconds since 1970)."""

    @property
    def now_s(self) -> float | None:
        """The controller's clock."""

    @property
    def health(self) -> t.Mapping[str, Health]:
        """By host."""

    @property
    def certificates(self) -> t.Mapping[str, float]:
        """By what they are of."""


DAYS = 14
_DAY = 86400.0
_SECONDS = 3.0
PORT = 30400  # model_gateway_node_port's default
_SOURCE = ("docs.k3s.io/cli/certificate: what ends within 90 days (120 since 2025) is renewed whenever K3s starts",)
GATEWAY, KUBECONFIG = "the gateway", "the controller's kubeconfig"
_OURS = {
    GATEWAY: (
        "Clients that check it refuse the gateway.",
        "Write the renewed certificate and its key where model_gateway_tls_certificate and model_gateway_tls_key say, and run gateway.yml.",
        (),
    ),
    KUBECONFIG: (
        "Whatever reaches the cluster from this machine is refused: serve, verify, models.",
        "Restart K3s on its server (systemctl restart k3s), which renews its own, then fetch it: dgxspark.cluster.site --tags k3s.",
        _SOURCE,
    ),
}


def ends(state: Known) -> t.Iterator[Diagnosis]:
    """Certificates that have ended, or will soon."""
    now = state.now_s
    if now is None:
        return
    for name, health in state.health.items():
        if health.certificates:
            path, end = min(health.certificates.items(), key=lambda each: (each[1], each[0]))
            unit = "k3s" if any("/server/" in each for each in health.certificates) else "k3s-agent"
            what = f"K3s's certificate {path}"
            cause = "K3s renews its certificates only when it starts. Without valid ones the node leaves the cluster."
            remedy = f"systemctl restart {unit} there, servers first. Pods keep running."
            yield from _judged(name, what, end, now, (cause, remedy, _SOURCE))
    for name, end in sorted(state.certificates.items()):
        yield from _judged(name, "its certificate", end, now, _OURS[name])


def _judged(
    where: str, what: str, end: float, now: float, told: tuple[str, str, tuple[str, ...]]
) -> t.Iterator[Diagnosis]:
    left = end - now
    if left > DAYS * _DAY:
        return
    date = datetime.datetime.fromtimestamp(end, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    cause, remedy, source = told
    if left <= 0:
        yield Diagnosis("certificate.expired", "error", where, f"{what} has expired on {date}.", cause, remedy, source)
    else:
        text = f"{what} expires on {date}, in {signatures.count(max(1, round(left / _DAY)), 'day')}."
        yield Diagnosis("certificate.expires", "warning", where, text, cause, remedy, source)


def shown_at(hosts: t.Iterable[str], port: int) -> float | None:
    """Return when the certificate ends that the first of these hosts shows at a port; None if none answers with one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for host in hosts:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), _SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            return certificates.not_after(tls.getpeercert(binary_form=True) or b"")
    return None


def of_kubeconfig(path: str) -> float | None:
    """Return when the client certificate in a kubeconfig ends; None without a file or one in it."""
    try:
        file = pathlib.Path(path)
        if not file.is_file() or file.stat().st_size > certificates.LARGEST:
            return None
        users = yaml.safe_load(file.read_text(encoding="utf-8"))["users"]
        data = [user["user"]["client-certificate-data"] for user in users]
        found = [end for each in data if (end := certificates.not_after(base64.b64decode(each))) is not None]
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError, binascii.Error):
        return None
    return min(found, default=None)
