"""When certificates end, read as nodes read it, of certificates that a real library has made."""

from __future__ import annotations

import datetime
import functools
import pathlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils.certificates import not_after, read_certificates

UTC = datetime.UTC


@functools.cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(begins: datetime.datetime, ends: datetime.datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "0123456789012Z")])
    made = x509.CertificateBuilder(name, name, key().public_key(), 7).not_valid_before(begins).not_valid_after(ends)
    return made.sign(key(), hashes.SHA256())


PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
times = st.datetimes(datetime.datetime(1951, 1, 1), datetime.datetime(2200, 1, 1)).map(
    lambda t: t.replace(microsecond=0, tzinfo=UTC)
)


@settings(max_examples=60)
@given(times, times)
def test_the_end_of_every_certificate_is_read(one: datetime.datetime, other: datetime.datetime) -> None:
    begins, ends = sorted((one, other))
    made = certificate(begins, ends)
    assert not_after(made.public_bytes(DER)) == not_after(made.public_bytes(PEM)) == ends.timestamp()
    # A chain begins with the certificate itself.
    chain = made.public_bytes(PEM) + certificate(begins, begins).public_bytes(PEM)
    assert not_after(chain) == ends.timestamp()


@given(st.binary(max_size=200))
def test_what_is_no_certificate_has_no_end(data: bytes) -> None:
    assert not_after(data) is None or data
    assert (
        not_after(b"-----BEGIN CERTIFICATE-----\n" + data.hex().encode() + b"\n-----END CERTIFICATE-----") is None
        or data
    )


def test_folders_are_read_without_cas_keys_and_what_is_too_large(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "k3s/agent"
    folder.mkdir(parents=True)
    now = datetime.datetime(2027, 3, 1, tzinfo=UTC)
    for name in ("client-kubelet.crt", "server-ca.crt", "client-kubelet.key"):
        (folder / name).write_bytes(certificate(now, now).public_bytes(PEM))
    (folder / "broken.crt").write_bytes(b"x")
    (folder / "large.crt").write_bytes(certificate(now, now).public_bytes(PEM) + b"x" * 300_000)
    (folder / "far.crt").symlink_to("/etc/passwd")
    assert read_certificates(["/k3s/agent", "/nowhere"], str(tmp_path)) == {
        "/k3s/agent/client-kubelet.crt": now.timestamp()
    }


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----"])
def test_nothing_and_bad_base64(text: bytes) -> None:
    assert not_after(text) is None
