"""Private data does not come out, in whatever form it went in; what a reader needs does."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import shlex
import string
import typing as t
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.redact import Private, Redactor, public
from ansible_collections.dgxspark.cluster.tests.support.properties import examples

KNOWN = (
    Private("spark", "spark1", "spark1"),
    Private("spark", "gx10-ab12", "spark1"),
    Private("spark", "spark2", "spark2"),
    Private("spark", "spark10", "spark10"),
    Private("host", "ctrl", "ctrl"),
    Private("domain", "home.example"),
    Private("user", "alice"),
    Private("serial", "MT2402XZ0ABC"),
    Private("secret", 'p4"ss w/örd+'),
    Private("secret", "hunter2-secret"),
    Private("addr", "192.0.2.17"),
)


def redacted(text: str, *more: str, private: t.Sequence[Private] = KNOWN) -> str:
    redactor = Redactor(private)
    redactor.learn([*more, text])
    clean = redactor.redact(text)
    assert redactor.redact(clean) == clean
    assert Redactor(private).redact(clean) == clean
    assert redactor.held(clean) is None
    return clean


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# How a text may be embedded. Each takes a text and returns a line that contains it.
CARRIERS: dict[str, t.Callable[[str], str]] = {
    "plain": lambda text: f"peer {text}: lost",
    "alone": lambda text: text,
    "end of a sentence": lambda text: f"cannot reach {text}.",
    "quoted": lambda text: f"'{text}' \"{text}\"",
    "json": lambda text: json.dumps({"a": f"x\n{text}\ty"}),
    "json in json": lambda text: json.dumps({"log": json.dumps({"a": f"x\n{text}"})}),
    "escaped": lambda text: "".join(f"\\u{ord(c):04x}" if ord(c) < 128 and c not in '"\\' else c for c in text),
    "url": lambda text: f"GET /?q={urllib.parse.quote(text, safe='')}&x=1",
    "whole url coded": lambda text: "GET /?q=" + "".join(f"%{b:02X}" for b in f" {text} ".encode()),
    "base64": lambda text: f"data: {in_base64(text)}",
    "base64 of json": lambda text: in_base64(json.dumps({"a": text, "b": 1})),
    "base64 of base64": lambda text: in_base64(in_base64(text + " ")),
    "url of base64": lambda text: urllib.parse.quote(in_base64(f"{text} here"), safe=""),
    "in brackets": lambda text: f"[{text}]:8000 ({text})",
    "assignment": lambda text: f"addr={text},dev=x",
    "shell": lambda text: shlex.join(["run", text]),
}
PLAIN_ADDRESSES = (
    "10.100.3.1",
    "192.0.2.17",
    "2001:db8:0:1::25",
    "2001:0db8:0000:0001:0000:0000:0000:0025",
    "fd00::1:2:3",
)


@pytest.mark.parametrize("carrier", CARRIERS, ids=str)
@pytest.mark.parametrize(
    "text", ["spark1", "SPARK2", "alice", "hunter2-secret", 'p4"ss w/örd+', "mt2402xz0abc", *PLAIN_ADDRESSES]
)
def test_nothing_private_comes_out_of_what_carries_it(carrier: str, text: str) -> None:
    clean = redacted(CARRIERS[carrier](text))
    for form in (text, json.dumps(text)[1:-1], urllib.parse.quote(text, safe=""), in_base64(text), text.encode().hex()):
        assert form.lower() not in clean.lower()
    # Nor is it hidden in encoded words.
    for word in re.findall(r"[A-Za-z0-9+/]{8,}={0,2}", clean):
        try:
            assert text.lower() not in base64.b64decode(word + "=" * (-len(word) % 4)).decode().lower()
        except ValueError:
            continue


FORMS_OF_A_MAC = {
    "5c:25:73:3c:12:34": "mac-1",
    "5C-25-73-3C-12-34": "mac-1",
    "5c25.733c.1234": "mac-1",
    "5c25733c1234": "mac-1",
    "enx5c25733c1234": "enxmac-1",
    "fe80::5e25:73ff:fe3c:1234": "link-local(mac-1)",
    "fe80:0000:0000:0000:5e25:73ff:fe3c:1234": "link-local(mac-1)",
    "fe800000000000005e2573fffe3c1234": "link-local(mac-1)",
    "5c25:7303:003c:1234": "guid(mac-1)",
    "5c:25:73:03:00:3c:12:34": "guid(mac-1)",
    "0x5c257303003c1234": "0xguid(mac-1)",
    "5e25:73ff:fe3c:1234": "guid(mac-1)",
    "5c25:73ff:fe3c:1234": "guid(mac-1)",
}
FORMS_OF_AN_IPV4 = {
    "10.100.3.1": "addr-1",
    "010.100.003.001": "addr-1",
    "10-100-3-1": "addr-1",
    "::ffff:10.100.3.1": "mapped(addr-1)",
    "::ffff:a64:301": "mapped(addr-1)",
    "0000:0000:0000:0000:0000:ffff:0a64:0301": "mapped(addr-1)",
    "00000000000000000000ffff0a640301": "mapped(addr-1)",
    "0a640301": "addr-1",
}


@pytest.mark.parametrize(("form", "label"), [*FORMS_OF_A_MAC.items(), *FORMS_OF_AN_IPV4.items()])
def test_one_address_has_one_pseudonym_in_all_its_forms(form: str, label: str) -> None:
    seen = "5c:25:73:3c:12:34" if form in FORMS_OF_A_MAC else "10.100.3.1"
    redactor = Redactor()
    redactor.learn([seen])
    assert redactor.redact(f"gid {form} up") == f"gid {label} up"


@pytest.mark.parametrize("form", [*FORMS_OF_A_MAC, *FORMS_OF_AN_IPV4])
def test_the_form_seen_first_does_not_matter(form: str) -> None:
    """A bare form alone is known when another text has the plain one, in whatever order the texts are redacted."""
    seen = "5c:25:73:3c:12:34" if form in FORMS_OF_A_MAC else "10.100.3.1"
    redactor = Redactor()
    redactor.learn([form, seen])
    both = redactor.redact(form), redactor.redact(seen)
    assert both[1] in both[0]
    assert "5c25" not in "".join(both) and "0a64" not in "".join(both)


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:01:00.1: 126.028 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x4 link at 0000:00:00.0)",
        "0002:01:00.3 enP2p1s0f1v1 15b3:101e",
        "2026-11-24T12:30:05.123456+0100 kernel: driver 580.95.05, 2.29.7+cuda13.2, 0.5.11",
        "c10::DistBackendError at ProcessGroupNCCL.cpp:637 std::bad_alloc at::Tensor torch::autograd",
        "lo 127.0.0.1/8 ::1/128 link/loopback 00:00:00:00:00:00 brd ff:ff:ff:ff:ff:ff 0.0.0.0:6443 255.255.255.0",
        "image vllm/vllm-openai@sha256:" + "0123456789abcdef" * 4,
        '"revision": "0123456789abcdef0123456789abcdef01234567"',
        "dgxspark-fabric-vf@enp1s0f0np0.service: started; user@1000.service",
        "https://huggingface.co/openai/gpt-oss-120b nvcr.io/nvidia/vllm:25.11-py3 unix:///run/k3s/containerd/containerd.sock",
        "serve-default-rank0-0 mtu 9000 gid 3 tos 104 token/s 31.5 max_tokens=4096",
        "gids/0:0000:0000:0000:0000:0000:0000:0000:0000",
        "/var/lib/rancher/k3s/agent/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots",
        "root nvidia-smi localhost",
    ],
)
def test_what_is_nobody_s_own_stays(line: str) -> None:
    assert redacted(line) == line


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("spark1 pings gx10-ab12.home.example, spark2 does not", "spark-1 pings spark-1.domain-1, spark-2 does not"),
        ("pod on spark10 of /home/bob/x", "pod on spark-3 of /home/user-2/x"),
        ("helper-spark1-pvc", "helper-spark-1-pvc"),
        ("spark100 sparks", "spark100 sparks"),
        ("10.0.0.1 -> 10.0.0.2 -> 10.0.0.1/24", "addr-2 -> addr-3 -> addr-2/24"),
        ("IP 10.0.0.1.4791 > fe80::1%eth0", "IP addr-3.4791 > addr-2%eth0"),
        ("https://bob:pw@proxy.corp.example:3128/", "https://***@host-2:3128/"),
        ("pull reg.corp.example:5000/a; http://reg.corp.example:5000", "pull host-2:5000/a; http://host-2:5000"),
        ("mail bob@corp.example", "mail mail-1"),
        ('DGX_SERIAL_NUMBER="1660224000123"', 'DGX_SERIAL_NUMBER="serial-2"'),
        ("serial_number MT1234X00001", "serial_number serial-2"),
        ("GPU-5d1b3cfe-1234-5678-9abc-def012345678", "GPU-id-1"),
        ("HF_TOKEN=hf_abcdefghij0123456789", "HF_TOKEN=***"),
        ("K10" + "ab" * 32 + "::server:0123456789abcdef", "***"),
    ],
)
def test_what_comes_instead(line: str, clean: str) -> None:
    assert redacted(line) == clean


def test_a_key_over_several_lines_and_a_kubeconfig() -> None:
    key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIqW9+abc\nAwEHoUQDQgAE\n-----END EC PRIVATE KEY-----"
    assert redacted(f"a\n{key}\nb") == "a\n***\nb"
    assert redacted(f"client-key-data: {in_base64(key)}") == "client-key-data: ***"
    assert redacted(f"a\n{key[:50]}") == "a\n***"  # cut off by a log's size limit


def test_all_that_was_replaced_is_counted_by_kind() -> None:
    redactor = Redactor(KNOWN)
    text = "alice@x spark1 spark1 10.0.0.1 5c:25:73:3c:12:34 hunter2-secret password=other1"
    redactor.learn([text])
    assert not redactor.counts
    redactor.redact(text)
    assert dict(redactor.counts) == {"user": 1, "spark": 2, "addr": 1, "mac": 1, "secret": 2}


def test_a_pseudonym_is_no_name_of_the_owner_s() -> None:
    private = [
        Private("spark", "spark", "a"),
        Private("spark", "addr-1", "b"),
        Private("user", "mac"),
        Private("spark", "host"),
    ]
    clean = redacted("spark addr-1 mac host 10.0.0.1 5c:25:73:3c:12:34", private=private)
    assert not re.search(r"\b(?:spark|mac|host|addr-1)\b", clean)
    assert len(set(clean.split())) == 6


def test_what_is_still_there_is_found() -> None:
    redactor = Redactor(KNOWN)
    assert redactor.held("x alice y") == ("user", "alice")
    assert redactor.held(in_base64("xx hunter2-secret")) == ("secret", "***")
    assert redactor.held("spark-1 malice") is None


NAMES = st.text(string.ascii_lowercase + string.digits + "-", min_size=3, max_size=12).filter(
    lambda name: name[0].isalpha() and name[-1].isalnum() and name not in public("name")
)
SECRETS = st.text(string.ascii_letters + string.digits + "!#$&/+=%'\"\\_. ", min_size=6, max_size=30).filter(
    lambda text: text == text.strip() and sum(c.isalnum() for c in text) >= 4
)
V4 = st.ip_addresses(v=4).filter(
    lambda a: not (a.is_loopback or a.is_unspecified or a.is_multicast or a.packed[0] in (0, 255))
)
V6 = st.ip_addresses(v=6).filter(
    lambda a: not (a.is_loopback or a.is_unspecified or a.is_multicast) and int(a) % 2**64 and not a.ipv4_mapped
)
MACS = st.binary(min_size=6, max_size=6).filter(lambda b: b.strip(b"\0") and b.strip(b"\xff"))


@settings(max_examples=examples(100))
@given(
    names=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    secret=SECRETS,
    v4=V4,
    v6=V6,
    mac=MACS,
    carriers=st.lists(st.sampled_from(sorted(CARRIERS)), min_size=6, max_size=6),
)
def test_no_planted_thing_survives(
    names: list[str],
    secret: str,
    v4: ipaddress.IPv4Address,
    v6: ipaddress.IPv6Address,
    mac: bytes,
    carriers: list[str],
) -> None:
    eui = bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    planted = {
        "name": names,
        "secret": [secret],
        "v4": [str(v4), f"::ffff:{v4}", ipaddress.IPv6Address(f"::ffff:{v4}").exploded, v4.packed.hex()],
        "v6": [str(v6), v6.exploded, v6.exploded.replace(":", "")] if v6.is_link_local else [str(v6), v6.exploded],
        "mac": [
            mac.hex(":"),
            mac.hex("-"),
            mac.hex(),
            str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + eui)),
            eui.hex(),
        ],
    }
    private = [*(Private("spark", name, name) for name in names), Private("secret", secret)]
    lines = [CARRIERS[carrier](text) for texts in planted.values() for text in texts for carrier in carriers]
    redactor = Redactor(private)
    redactor.learn(lines)
    for group, texts in planted.items():
        for text in texts:
            for carrier in carriers:
                line = CARRIERS[carrier](text)
                clean = redactor.redact(line)
                assert redactor.redact(clean) == clean, (carrier, line)
                found = re.search(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])", clean, re.IGNORECASE)
                assert not found, (group, carrier, line, clean)
                for form in (in_base64(text), urllib.parse.quote(text, safe="")):
                    assert form == text or form not in clean, (group, carrier, line, clean)
