# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA test programs: their arguments, and how to read their output."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

# The programs by kind of test, preferred ones first. Programs of one kind do not interoperate, so both ends must run the
# same one; the controller chooses among those that both ends have.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "write": ("ib_write_bw",),
    "pingpong": ("ib_send_lat", "ibv_rc_pingpong"),
}
PACKAGE = {"ib_write_bw": "perftest", "ib_send_lat": "perftest", "ibv_rc_pingpong": "ibverbs-utils"}


@dataclass(frozen=True, slots=True)
class RdmaTest:
    """One end of one test. Both ends get the same `id`, `program`, `port`, `size` and `iterations` or `duration`.

    port: the TCP port of the ends' rendezvous; the program itself uses `program_port`. path_mtu: the RDMA path MTU in
    bytes that both ends support, None for the program's own choice. Sizes in bytes, times in seconds. together: consecutive
    tests with the same name run at the same time. run: this verify, in words: another one at the same time must not meet our ends.
    """

    id: str
    role: t.Literal["server", "client"]
    program: str
    hca: str
    hca_port: int
    gid_index: int
    address: str
    peer: str
    port: int
    size: int
    iterations: int | None = None
    duration: int | None = None
    path_mtu: int | None = None
    together: str | None = None
    run: str = ""

    @property
    def program_port(self) -> int:
        """The TCP port on which the program's two ends meet."""
        return self.port + 1


def argv(test: RdmaTest) -> list[str]:
    """Return the command line of this end."""
    pingpong = test.program == "ibv_rc_pingpong"
    words = [test.program, "-d", test.hca, "-i", str(test.hca_port), "-p", str(test.program_port), "-s", str(test.size)]
    words += ["-g" if pingpong else "-x", str(test.gid_index)]
    if test.path_mtu:
        words += ["-m", str(test.path_mtu)]
    if test.duration and not pingpong:
        words += ["-D", str(test.duration)]
    elif test.iterations:
        words += ["-n", str(test.iterations)]
    if not pingpong:
        # -F: CPU frequency scaling is a warning, not the end of the test.
        words += ["-F"]
    return [*words, test.peer] if test.role == "client" else words


# "#iterations", "BW average[Gb/sec]", "99% percentile[usec]": names contain blanks, and one blank may separate two names.
_COLUMN = re.compile(r"#\w+|[^\s#]+(?: [^\s#]+)*?\[[^\]]+\]|tps average")
_BITS = re.compile(r"bytes in [\d.]+ seconds = ([\d.]+) Mbit/sec")
_TRIPS = re.compile(r"iters in [\d.]+ seconds = ([\d.]+) usec/iter")


def figures(program: str, output: str) -> dict[str, float]:
    """Read the figures of a program's output: `gbps` (and `gbps_peak`), `usec` (and `usec_typical`, `usec_max`).

    Empty if there are none: the program did not finish, or its output has an unknown form.
    """
    if program == "ibv_rc_pingpong":
        bits, trips = _BITS.search(output), _TRIPS.search(output)
        # One iteration is a round trip.
        return {"gbps": float(bits[1]) / 1000, "usec": float(trips[1]) / 2} if bits and trips else {}
    row = _row(output)
    # Two decimals of MiB/s resolve a slow path better than two decimals of Gb/s (--report_gbits). Versions name the unit
    # differently; it is 2^20 bytes in all of them.
    found = {
        name: round(row[f"BW {column}[{unit}]"] * 8 * 2**20 / 1e9, 6)
        for unit in ("MB/sec", "MiB/sec")
        for column, name in (("average", "gbps"), ("peak", "gbps_peak"))
        if f"BW {column}[{unit}]" in row
    }
    if found.get("gbps") == 0 and "MsgRate[Mpps]" in row and "#bytes" in row:
        # A few retransmitted packets round to 0.00 MiB/s; the message rate has six decimals.
        found["gbps"] = round(row["MsgRate[Mpps]"] * 1e6 * row["#bytes"] * 8 / 1e9, 6)
    known = {
        "t_avg[usec]": "usec",
        "t_typical[usec]": "usec_typical",
        "t_max[usec]": "usec_max",
        "#iterations": "iterations",
    }
    return found | {name: row[column] for column, name in known.items() if column in row}


def _row(output: str) -> dict[str, float]:
    """Return the first row of a perftest table by column name."""
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if not line.strip().startswith("#bytes"):
            continue
        columns = _COLUMN.findall(line)
        for following in lines[number + 1 :]:
            values = following.split()
            if len(values) >= 2 and all(re.fullmatch(r"-?(?:\d+\.?\d*|inf|nan)", value) for value in values):
                return dict(zip(columns, map(float, values), strict=False)) if len(columns) <= len(values) else {}
    return {}


def last_words(output: str, limit: int = 400) -> str:
    """Return a failed program's message in one line: its error lines, else its last lines."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    lines = [line for line in lines if line and not set(line) <= set("-*=# ")]
    complaints = [line for line in lines if re.search(r"(?i)fail|error|unable|couldn|can't|not found|invalid", line)]
    return "; ".join(dict.fromkeys(complaints or lines[-3:]))[:limit]
