"""What guide_first_evening has an owner do beside typing its commands: edit the inventory that `discover` wrote, and ask the model."""

from __future__ import annotations

import pathlib
import re


def with_k3s(inventory: pathlib.Path) -> None:
    """Uncomment K3s's groups."""
    hosts = inventory / "hosts.yml"
    hosts.write_text(re.sub(r"(?m)^    # (?!K3s)", "    ", hosts.read_text(encoding="utf-8")), encoding="utf-8")


def with_model(inventory: pathlib.Path, block: str) -> None:
    """Uncomment the lines of group_vars/dgx.yml about serving, and write a guide's block there, in place of what it has, too."""
    group = inventory / "group_vars" / "dgx.yml"
    text = re.sub(r"(?m)^# (?=k8s_dgx)", "", group.read_text(encoding="utf-8"))
    for name in re.findall(r"(?m)^\w+:", block):
        text = re.sub(rf"(?m)^{name}.*\n", "", text)
    group.write_text(text + block, encoding="utf-8")


def printed_curl(printed: str) -> str:
    """Return the request that `serve` printed; a command that fails if there is none."""
    found = re.search(r"(?m)^  ((?:printf .*\| )?curl .*)$", printed)
    return found[1] if found else "echo no curl is printed; exit 1"
