"""Bandwidths of NCCL that owners of Sparks have published."""

from __future__ import annotations

GIB = 1024**3


# Bus bandwidth as published, in GB/s (Gb/s divided by 8), with its source. See the bands' own sources.
RECORDED: list[tuple[str, str, str, int, int, float, str, str | None]] = [
    ("playbooks PR 103, both HCAs", "all_gather", "direct", 2, 16 * GIB, 23.74, "pass", None),
    ("gx10 at MTU 1500", "all_gather", "direct", 2, 8 * GIB, 21.95, "pass", None),
    ("gx10 at MTU 9000", "all_gather", "direct", 2, 8 * GIB, 22.68, "pass", None),
    ("playbooks 25, in place", "all_gather", "direct", 2, 16 * GIB, 20.95, "pass", None),
    ("VEXP 35, merged NICs, 161 Gb/s", "all_reduce", "direct", 2, GIB, 161 / 8, "pass", None),
    ("dgxarley, spanned, 185 Gbit/s", "all_reduce", "switch", 4, GIB, 185 / 8, "pass", None),
    ("dgxarley, spanned, 190 Gbit/s", "all_reduce", "switch", 4, GIB, 190 / 8, "pass", None),
    ("playbooks 25, out of place", "all_gather", "direct", 2, 16 * GIB, 18.94, "warn", "nccl.below-best"),
    ("VEXP 35, one HCA, 98 Gb/s", "all_reduce", "direct", 2, GIB, 98 / 8, "suspect", "nccl.one-function"),
    ("dgxarley, one function's VFs", "all_reduce", "switch", 4, GIB, 9.78, "suspect", "nccl.one-function"),
    ("dgxarley, not spanned, 92 Gbit/s", "all_reduce", "switch", 4, GIB, 92 / 8, "suspect", "nccl.one-function"),
    ("dgxarley, not spanned, 95 Gbit/s", "all_reduce", "switch", 4, GIB, 95 / 8, "suspect", "nccl.one-function"),
    ("dgxarley, sockets", "all_reduce", "switch", 4, GIB, 2.12, "suspect", "nccl.socket"),
    ("dgxarley, labelled roce", "all_reduce", "switch", 4, GIB, 2.20, "suspect", "nccl.socket"),
    ("gx10, throttled", "all_gather", "direct", 2, GIB, 1.6, "suspect", "nccl.throttled"),
    # A ring of three, healthy.
    ("aicad, three in a ring", "all_reduce", "triangle", 3, GIB, 13.9, "pass", None),
    ("aicad, three in a ring", "all_reduce", "ring", 3, GIB, 13.9, "pass", None),
    ("aicad, three in a ring", "all_gather", "triangle", 3, GIB, 21.0, "pass", None),
    # What lies in no band: a development build of NCCL over both HCAs, which the socket band must not match.
    ("playbooks PR 103, development build", "all_gather", "direct", 2, 16 * GIB, 3.04, "unknown", None),
    ("between the bands", "all_reduce", "switch", 4, GIB, 6.0, "unknown", None),
    ("nearly nothing", "all_reduce", "switch", 4, GIB, 0.3, "unknown", None),
    # Nobody has published a healthy ring of four, or any other operation.
    ("ring of four", "all_reduce", "ring", 4, GIB, 13.9, "unknown", None),
    ("another operation", "broadcast", "switch", 4, GIB, 22.0, "unknown", None),
    # Real figures of sockets on one machine, at 64 MiB: too small to judge.
    ("64 MiB", "all_reduce", "switch", 4, 64 * 1024**2, 3.29, "unknown", None),
    ("just below", "all_reduce", "switch", 4, GIB - 1, 22.0, "unknown", None),
]
