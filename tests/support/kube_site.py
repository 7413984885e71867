"""A site whose cluster is the stand-in for the API server."""

from __future__ import annotations

import json
import pathlib
import typing as t
import urllib.request

from ansible_collections.dgxspark.cluster.tests.api import harness
from ansible_collections.dgxspark.cluster.tests.stand_ins import kube_api


class StandIn(harness.Site):
    """The site with a stand-in for its cluster."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cluster = kube_api.Cluster([f"spark{number}" for number in range(1, 5)])
        self.server = kube_api.serve(self.cluster, folder / "kubeconfig")
        super().__init__(folder, folder / "kubeconfig")

    def names(self, kind: str) -> set[str]:
        """Return the names of all objects of a kind."""
        return {key[3] for key, made in self.cluster.objects.items() if made["kind"] == kind}

    def say(self, said: dict[str, t.Any]) -> None:
        """Tell the stand-in what state pods come up in, by the start of their names or by their image."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.server.server_port}/_say", json.dumps(said).encode(), method="POST"
        )
        urllib.request.urlopen(request).close()
