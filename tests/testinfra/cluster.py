"""The cluster of a Molecule scenario, as Kubernetes' client library sees it, independent of the roles."""

from __future__ import annotations

import typing as t

from kubernetes import client, config

from ansible_collections.dgxspark.cluster.tests.testinfra.hosts import STAND_INS


def api(group: str) -> t.Any:
    """Return an API of the cluster by its class in the client library."""
    return getattr(client, group)(config.new_client_from_config(str(STAND_INS / "kubeconfig")))


def names(listed: t.Any) -> set[str]:
    """Return the names of listed objects."""
    return {each.metadata.name for each in listed.items}
