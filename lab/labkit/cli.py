# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of the lab."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time

from labkit import config as configuration
from labkit import host, image, machine, processes
from labkit.cluster import Cluster
from labkit.errors import LabError

DESCRIPTION = "A virtual cluster of DGX Sparks on this machine: QEMU nodes with SR-IOV cards on one virtual switch."
EPILOG = """environment:
  DGXSPARK_LAB_NAME    which lab (default: default); several may run side by side
  DGXSPARK_LAB_PORT    base of its ssh ports on 127.0.0.1 (default: 22200; node N has base + N)
  DGXSPARK_LAB_CACHE   image, saved state and keys (default: ~/.cache/dgxspark-lab)
  DGXSPARK_LAB_ACCEL   tcg or kvm (default: kvm where the lab's kernel really boots under it)
  DGXSPARK_LAB_MIRROR  Debian mirror for the image (default: this machine's own)
  DGXSPARK_LAB_GUEST   a folder like lab/guest, whose packages, modules and files come on top of it
  DGXSPARK_LAB_RENDERER  networkd (the default), or networkmanager: who configures the nodes' interfaces for netplan
  DGXSPARK_LAB_BOOT    kernel (the default: QEMU is given it), or grub: nodes boot by GRUB, any kernel that is installed on them; always cold
  DGXSPARK_LAB_MEMORY  MiB of memory of each node (default: 512)
  DGXSPARK_LAB_CPUS    CPUs of each node (default: 1)

exit status: 0 well, 1 error, 3 status of a lab that is not up or not whole
"""


def say(text: str) -> None:
    """Print progress to standard error; results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def count(text: str) -> int:
    """Parse a number of nodes."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= configuration.MAX_NODES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {configuration.MAX_NODES}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Build the parser of commands and arguments."""
    top = argparse.ArgumentParser(
        "lab/lab", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="bring the nodes up; what is up already stays as it is")
    up.add_argument(
        "--nodes", type=count, metavar="N", help="spark1 to sparkN, 1 to 8 (default: 4, or those there are)"
    )
    up.add_argument("--cold", action="store_true", help="boot the nodes instead of restoring them from the saved state")
    status = commands.add_parser("status", help="what runs; exit status 3 when something is amiss")
    status.add_argument("--json", action="store_true", help="as data")
    ssh = commands.add_parser("ssh", help="log in to a node, or run a command there")
    ssh.add_argument("node", help="3 or spark3")
    ssh.add_argument("words", nargs=argparse.REMAINDER, metavar="command", help="what to run")
    inventory = commands.add_parser("inventory", help="an Ansible inventory of the running nodes")
    inventory.add_argument("--format", choices=("yaml", "json"), default="yaml")
    commands.add_parser("down", help="end the lab and remove everything but the cache")
    commands.add_parser("purge", help="down, and remove the cache too")
    commands.add_parser("install-deps", help="install what the lab needs (root, Debian or Ubuntu)")
    link = commands.add_parser("link", help="pull or plug the cable of one function of a node's card")
    link.add_argument("node")
    link.add_argument("function", help=f"{' or '.join(configuration.FUNCTIONS)}, or 1 or 2")
    link.add_argument("state", choices=("up", "down"))
    cables = commands.add_parser("cables", help="join functions by cables alone, or all of them by the switch")
    cables.add_argument("cables", nargs="+", metavar="CABLE", help="spark1:2=spark2:1 …, or switch")
    port = commands.add_parser("port", help="make the switch's port of one function drop, delay or reorder frames")
    port.add_argument("node")
    port.add_argument("function")
    port.add_argument(
        "fault", nargs="+", metavar="FAULT", help="mtu=BYTES, delay=MS, loss=PERCENT, reorder=PERCENT; or well"
    )
    power = commands.add_parser("power", help="cut a node's power, give it again, or press its reset button")
    power.add_argument("action", choices=("on", "off", "reset"))
    power.add_argument("node")
    for name, text in (
        ("reboot", "reboot a node and wait for it"),
        ("crash", "kill a node's virtual machine"),
        ("replace", "put another machine in a node's place: a bare disk, other MACs"),
    ):
        commands.add_parser(name, help=text).add_argument("node")
    return top


def dispatch(arguments: argparse.Namespace, lab: Cluster) -> int:
    """Run one command; return the exit status."""
    command = arguments.command
    node = configuration.node_number(arguments.node) if "node" in arguments else 0
    if command == "up":
        return up(arguments, lab)
    if command == "status":
        return status(lab, as_json=arguments.json)
    if command == "ssh":
        lab.require(node)
        options = machine.ssh_command(lab.config, node)
        os.execvp("ssh", options + (arguments.words if arguments.words else []))
    if command == "inventory":
        # JSON would be valid YAML, but people who ask for YAML get its usual layout.
        data = lab.inventory()
        print(json.dumps(data, indent=2) if arguments.format == "json" else yaml(data))
    elif command == "down":
        say(f"Lab {lab.config.name!r} is down." if lab.down() else f"Lab {lab.config.name!r} was not up.")
    elif command == "purge":
        lab.down()
        if processes.mentions(f"{lab.config.cache}/"):
            raise LabError(
                f"Another lab is running from {lab.config.cache}.", "Take it down first (DGXSPARK_LAB_NAME)."
            )
        with image.locked(lab.config, say):
            shutil.rmtree(lab.config.cache)
        say(f"Removed {lab.config.cache}.")
    elif command == "install-deps":
        say(host.install())
    elif command == "link":
        function = configuration.function_index(arguments.function)
        lab.link(node, function, up=arguments.state == "up")
        say(f"{configuration.node_name(node)}: cable of {configuration.FUNCTIONS[function]} {arguments.state}.")
    elif command == "cables":
        lab.cables(None if arguments.cables == ["switch"] else [configuration.cable(text) for text in arguments.cables])
        say(f"Cables: {', '.join(arguments.cables)}.")
    elif command == "port":
        function = configuration.function_index(arguments.function)
        lab.port(node, function, configuration.port_fault(arguments.fault))
        say(
            f"{configuration.node_name(node)}: port of {configuration.FUNCTIONS[function]} {' '.join(arguments.fault)}."
        )
    elif command == "power":
        lab.power(node, arguments.action)
        say(f"{configuration.node_name(node)}: power {arguments.action}.")
    elif command == "reboot":
        say(f"{configuration.node_name(node)} is back after {lab.reboot(node):.0f} s.")
    elif command == "replace":
        lab.replace(node)
        say(f"{configuration.node_name(node)} is another machine.")
    elif command == "crash":
        lab.crash(node)
        say(f"{configuration.node_name(node)}: its virtual machine was killed.")
    return 0


def up(arguments: argparse.Namespace, lab: Cluster) -> int:
    """`lab/lab up`."""
    begun = time.monotonic()
    started = lab.up(arguments.nodes, cold=arguments.cold)
    names = ", ".join(node.name for node in lab.nodes() if node.state == "running")
    if started:
        say(f"Up after {time.monotonic() - begun:.1f} s: {names}.")
    else:
        say(f"Already up: {names}.")
    return 0


def status(lab: Cluster, *, as_json: bool) -> int:
    """`lab/lab status`."""
    report = lab.report()
    if as_json:
        print(json.dumps(report, indent=2))
        return 0 if report["healthy"] else 3
    nodes = lab.nodes()
    if not nodes:
        print(f"Lab {lab.config.name!r} is not up.")
        return 3
    for node in nodes:
        print(f"{node.name:8} {node.state:22} 127.0.0.1:{node.port}  {node.memory_mib:4} MiB  {node.accelerator}")
    print(f"{'switch':8} {report['switch']}")
    for node in nodes:
        if not node.healthy:
            say(f"{node.name} is {node.state}. lab/lab up starts it again.")
    if report["switch"] != "running":
        say("The switch is gone: no node reaches another. lab/lab up starts it again.")
    return 0 if report["healthy"] else 3


def yaml(data: object, indent: int = 0) -> str:
    """Format nested dictionaries of strings and numbers as YAML."""
    if not isinstance(data, dict):
        return f" {json.dumps(data)}"
    if not data:
        return " {}"
    lines = [f"{' ' * indent}{key}:{yaml(value, indent + 2)}" for key, value in data.items()]
    return ("\n" if indent else "") + "\n".join(lines)


def main() -> int:
    """Run the user's command."""
    arguments = parser().parse_args()
    host.extend_path()
    try:
        return dispatch(arguments, Cluster(configuration.load(os.environ, os.getuid()), say))
    except LabError as error:
        say(f"lab: {error}")
    except KeyboardInterrupt:
        say("lab: interrupted. The next up or down clears away what was begun.")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except Exception as error:
        # A bug in the lab or a problem of the machine: one line, unless debugging.
        if os.environ.get("DGXSPARK_LAB_DEBUG"):
            raise
        say(f"lab: {type(error).__name__}: {error}\n  DGXSPARK_LAB_DEBUG=1 shows where.")
    return 1
