# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find addresses in a line, in every form that nodes write, and replace each by a label.

IPv4 (also with dashes, or in a GID), IPv6, MAC (with colons, dashes, dots, or bare), GIDs and GUIDs derived from a MAC, UUIDs
and other hexadecimal identifiers. Labels are canonical: `mapped(addr-3)` is the GID of addr-3's IPv4 address,
`link-local(mac-2)` the one that the kernel derives from mac-2. Loopback, masks and multicast identify nobody and stay.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.dgxspark.cluster.plugins.plugin_utils import ip

Label = str
_H = "[0-9A-Fa-f]"
_BEGIN = r"(?:(?<![0-9A-Za-z])|(?<=\\[nrtbf]))"
_END = r"(?![0-9A-Za-z])"
_UUID = re.compile(rf"{_BEGIN}{_H}{{8}}-(?:{_H}{{4}}-){{3}}{_H}{{12}}{_END}")
_RUN = re.compile(
    rf"(?:{_H}{{0,20}}:){{2,400}}(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?!\d)|{_H}{{0,20}}(?::{_H}{{0,20}}){{2,400}}"
)
_V4 = re.compile(r"(?<!\d)(?<!\d\.)(?:\d{1,3}\.){3}\d{1,3}(?!\d)")
_V4_DASHED = re.compile(rf"{_BEGIN}(?:\d{{1,3}}-){{3}}\d{{1,3}}{_END}")
_MAC = re.compile(rf"(?<![0-9A-Fa-f:])(?:{_H}{{2}}:){{5}}{_H}{{2}}(?![0-9A-Fa-f:])")
_NO_MACS = frozenset(("0" * 12, "f" * 12))
_MAC_OTHER = re.compile(rf"{_BEGIN}(?:(?:{_H}{{2}}-){{5}}{_H}{{2}}|(?:{_H}{{4}}\.){{2}}{_H}{{4}}){_END}")
_ARPA = re.compile(rf"(?:{_H}\.){{8,32}}ip6\.arpa")
_BARE = re.compile(rf"{_BEGIN}(0x|en[ox]|wlx|wwx|eth|ib)?({_H}{{8,}}){_END}")
# Digests that tell a reader which software ran, and are the same for everybody who has it.
_PUBLIC_DIGEST = re.compile(r"(?:sha256[:=/-]|sha256sum[:=]? ?)$", re.IGNORECASE)
_PUBLIC_REVISION = re.compile(
    r"(?:revision|commit)\\?[\"']?\s{0,2}[:=]?\s{0,2}\\?[\"']?$|(?:snapshots|resolve)/$", re.I
)
_SHARED_MULTICAST = ("ff02::1", "ff02::2", "ff02::fb", "ff02::16")


class Addresses:
    """label(kind, canonical text) gives the pseudonym. An address seen in one form is recognised in the others."""

    def __init__(self, label: t.Callable[[str, str], Label], loopback: bool = False) -> None:
        """loopback: also label loopback and multicast addresses, masks and 0.0.0.0."""
        self._label = label
        self._all = loopback
        self._macs: set[str] = set()
        self._guids: set[str] = set()
        self._v4: dict[str, t.Any] = {}

    def see(self, text: str) -> None:
        """Record the MACs in a text."""
        self._macs |= {found.group().replace(":", "").lower() for found in _MAC.finditer(text)} - _NO_MACS

    def replace(self, line: str) -> str:
        """Return the line with labels in place of addresses."""
        dashed = line.count("-") > 2
        if dashed:
            line = _UUID.sub(lambda found: self._label("id", found.group().lower()), line)
        if "ip6.arpa" in line:
            line = _ARPA.sub(lambda found: self._label("addr", found.group().lower()), line)
        if ":" in line:
            line = _RUN.sub(self._run, line)
        line = _MAC_OTHER.sub(lambda found: self._mac(found.group()), line)
        line = _V4.sub(lambda found: self._v4_label(found.group()) or found.group(), line)
        line = _V4_DASHED.sub(self._dashed, line) if dashed else line
        return _BARE.sub(self._bare, line)

    def _run(self, found: re.Match[str]) -> str:
        text, line = found.group(), found.string
        if not text.strip(":"):
            return text
        if "." in text:
            label = self._colons(text)
            if label is not None:
                return label
            head, _colon, last = text.rpartition(":")
            return ":".join([*self._windows(head.split(":")), self._v4_label(last) or last])
        groups = text.split(":")
        first = 1 if _in_word(line, found.start() - 1) and groups[0] else 0
        past = len(groups) - (1 if line[found.end() : found.end() + 1].isalpha() and groups[-1] else 0)
        return ":".join([*groups[:first], *self._windows(groups[first:past]), *groups[past:]])

    def _windows(self, groups: list[str]) -> list[str]:
        """Return the groups with labels in place of runs that form an address, the longest first."""
        made: list[str] = []
        start = 0
        while start < len(groups):
            for end in range(min(len(groups), start + 20), start + 2, -1):
                if not _may_be(groups, start, end):
                    continue
                label = self._colons(":".join(groups[start:end]))
                if label is not None:
                    made.append(label)
                    start = end
                    break
            else:
                made.append(groups[start])
                start += 1
        return made

    def _colons(self, text: str) -> str | None:
        """Return the replacement for a text with colons that is one address, or None if it is not."""
        groups = text.split(":")
        octets = all(len(group) == 2 for group in groups)
        if len(groups) == 6 and octets:
            return self._mac(text)
        if (len(groups) == 8 and octets) or (len(groups) == 4 and all(len(group) == 4 for group in groups)):
            return self._guid(text)
        if len(groups) == 20 and octets:
            return self._guid(":".join(groups[12:]))
        address = ip.address(text, 6)
        return None if address is None else self._v6(address, text)

    def _mac(self, text: str) -> str:
        bare = re.sub(r"[^0-9a-f]", "", text.lower())
        if bare in _NO_MACS:
            return text
        self._macs.add(bare)
        return self._label("mac", bare)

    def _guid(self, text: str) -> str:
        bare = text.replace(":", "").lower()
        if not bare.strip("0"):
            return text
        self._guids.add(bare)
        macs = _macs_of(bare)
        if macs:
            return f"guid({self._label('mac', next((mac for mac in macs if mac in self._macs), macs[0]))})"
        return self._label("guid", bare)

    def _v4_label(self, text: str) -> str | None:
        """Return the label, or None if it is no address or identifies nobody."""
        address = ip.address(".".join(str(int(octet)) for octet in text.split(".")), 4)
        if address is None:
            return None
        nobody_s = not int(address) or address.is_loopback() or address.is_multicast() or address.packed[0] == 255
        if nobody_s and not self._all:
            return None
        digits = address.packed.hex()
        self._v4[digits] = self._v4[address.packed[::-1].hex()] = self._v4[str(address).replace(".", "-")] = address
        return self._label("addr", str(address))

    def _v6(self, address: t.Any, text: str) -> str:
        prefix_only = text.endswith("::") and text.count(":") == 2
        if (
            not int(address)
            or (address.is_loopback() and not self._all)
            or prefix_only
            or str(address) in _SHARED_MULTICAST
        ):
            return text
        if address.is_ipv4_mapped():
            label = self._v4_label(str(address.ipv4()))
            return f"mapped({label})" if label else text
        made = address.packed[8:].hex()
        if made[6:10] == "fffe" and address.is_link_local() and not any(address.packed[2:8]):
            return f"link-local({self._mac(_macs_of(made)[0])})"
        return self._label("addr", address.format(ip.VERBOSE))

    def _dashed(self, found: re.Match[str]) -> str:
        known = self._v4.get(found.group())
        return self._label("addr", str(known)) if known else found.group()

    def _bare(self, found: re.Match[str]) -> str:
        prefix, digits = found.group(1) or "", found.group(2).lower()
        label = self._digits(digits, prefix, found.string[max(0, found.start() - 24) : found.start()])
        return found.group() if label is None else f"{prefix}{label}"

    def _digits(self, digits: str, prefix: str, before: str) -> str | None:
        size = len(digits)
        if size == 8:
            return self._label("addr", str(self._v4[digits])) if digits in self._v4 else None
        if size == 12 and (digits in self._macs or prefix in ("enx", "wlx", "wwx")):
            return self._mac(digits)
        if size == 16 and (digits in self._guids or self._macs.intersection(_macs_of(digits))):
            return self._guid(digits)
        if size == 32:
            address = ip.of_number(int(digits, 16), 6)
            if not digits.strip("0"):
                return None
            if address.is_ipv4_mapped() or address.is_link_local():
                label = self._v6(address, digits)
                return None if label == digits else label
        if size in (40, 64) and (_PUBLIC_DIGEST if size == 64 else _PUBLIC_REVISION).search(before):
            return None
        mixed = not digits.isdigit() and not digits.isalpha()
        # A short run of digits alone is a time or a size.
        return self._label("id", digits) if size >= 28 or (mixed and size in (12, 16)) else None


def _may_be(groups: list[str], start: int, end: int) -> bool:
    """Whether groups of digits may be one address, without reading them: a GID of 20 octets, or at most IPv6's eight and a `::`."""
    if end - start > 9:
        return end - start == 20 and len(groups[start]) == len(groups[end - 1]) == 2
    empty = groups[start:end].count("")
    return empty < 4 and (empty > 0 or end - start in (4, 6, 8))


def _in_word(line: str, place: int) -> bool:
    """Whether the character at `place` is a letter of a word, and not the end of an escape such as \\n."""
    if place < 0 or not line[place].isalpha():
        return False
    return not (line[place] in "nrtbf" and place > 0 and line[place - 1] == "\\")


def _macs_of(bare: str) -> list[str]:
    """Return the MACs that 16 digits may derive from: by ff:fe inside (EUI-64, with or without a flipped bit), or mlx5's 03:00."""
    if bare[6:10] == "fffe":
        return [f"{int(bare[:2], 16) ^ 2:02x}{bare[2:6]}{bare[10:]}", bare[:6] + bare[10:]]
    return [bare[:6] + bare[10:]] if bare[6:10] == "0300" else []
