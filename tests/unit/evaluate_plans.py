"""Plan the inventories in the folders given, as the role does: Ansible loads them, its templar evaluates the role's expression.

Prints a JSON dictionary of folder -> {"planned": names of hosts} or {"refused": message}. A process of its own, as
Ansible's collection loader cannot be shared. Nothing here connects to anything.
"""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

ROLE_VARS = pathlib.Path(__file__).resolve().parents[2] / "roles" / "sriov_roce" / "vars" / "main.yml"


def evaluate(folder: str) -> dict[str, t.Any]:
    """Return what the first host of the group `dgx` (of all, where there is none) sees as the plan."""
    loader = DataLoader()
    loader.set_basedir(folder)
    inventory = InventoryManager(loader=loader, sources=[folder])
    variables = VariableManager(loader=loader, inventory=inventory)
    HostVars(inventory, variables, loader)  # the manager keeps it and offers it as `hostvars`
    host = (inventory.get_hosts("dgx") or inventory.get_hosts())[0]
    of_role = loader.load_from_file(str(ROLE_VARS), trusted_as_template=True)
    templar = Templar(loader, variables={**of_role, **variables.get_vars(host=host)})
    try:
        plan = templar.template(trust_as_template("{{ __sriov_roce_plan }}"))
    except AnsibleError as exc:
        return {"refused": str(exc)}
    return {"planned": list(plan["hosts"])}


if __name__ == "__main__":
    init_plugin_loader([])
    print(json.dumps({folder: evaluate(folder) for folder in sys.argv[1:]}))
