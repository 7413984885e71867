"""Which names say that a value is a secret."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.secret_names import FILE, NAME

SECRET = [
    "HF_TOKEN", "token", "agent-token", "ansible_become_password", "ssl-keyfile-password", "ansible_become_pass", "passwd", "passphrase",
    "client_secret", "api_key", "api-key", "APIKEY", "api_keys", "S3_SECRET_ACCESS_KEY", "private_key", "credentials", "vpn-auth",
]  # fmt: skip
PLAIN = [
    "max_tokens", "kt-max-deferred-experts-per-token", "bucket-time-to-first-token", "SGLANG_USE_AITER_FP8_PER_TOKEN", "per_pass",
    "compass", "tokenizer", "key", "author", "secretary", "HF_TOKEN_PATHS",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_the_value_of_such_a_name_is_a_secret(name: str) -> None:
    assert NAME.search(name) and FILE.search(f"{name}_file")


@pytest.mark.parametrize("name", PLAIN)
def test_the_value_of_another_is_not(name: str) -> None:
    assert not NAME.search(name)


def test_files_with_a_key_are_secret() -> None:
    assert (
        FILE.search("ansible_ssh_private_key_file") and FILE.search("tls-key-file") and not FILE.search("values_file")
    )
