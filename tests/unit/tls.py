"""TLS for stand-ins on loopback, with a certificate made for one test."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def speaks_tls(authority: pathlib.Path) -> ssl.SSLContext:
    """Return the TLS context of a server on 127.0.0.1; write its self-signed certificate to `authority`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, certified(authority))
    return context


def certified(authority: pathlib.Path, ends_s: float = 3600.0) -> pathlib.Path:
    """Write a self-signed certificate for 127.0.0.1 to `authority`, which ends so many seconds from now; return its key's file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(seconds=ends_s))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both = authority.with_suffix(".key")
    both.touch(mode=0o600)
    both.write_bytes(secret)
    return both
