"""Which names say that a value is a secret."""

from __future__ import annotations

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.secret_names import of_file, secret

SECRET = [
    "HF_TOKEN", "token", "agent-token", "ansible_become_password", "ssl-keyfile-password", "ansible_become_pass", "passwd", "passphrase",
    "client_secret", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "WANDB_API_KEY", "HUGGINGFACE_TOKEN", "SECRET_KEY", "dbPassword", "DB_PASSWORD2",
    "LICENSE_KEY", "MY_APP_KEY", "PGPASSWORD", "DOCKER_AUTH", "wifi_psk", "Authorization", "Cookie", "NGC_API_KEY", "api_key",
    "api-key", "APIKEY", "api_keys", "S3_SECRET_ACCESS_KEY", "private_key", "credentials", "vpn-auth",
]  # fmt: skip
PLAIN = [
    "max_tokens", "kt-max-deferred-experts-per-token", "bucket-time-to-first-token", "SGLANG_USE_AITER_FP8_PER_TOKEN", "per_pass",
    "compass", "PWD", "eos_token", "allow-credentials", "secretName", "SGLANG_LOG_DECODE_GRAPH_KEY", "TOKENIZERS_PARALLELISM", "HF_TOKEN_PATH",
    "cache_key", "public_key", "secretKeyRefName", "tokenizer", "key", "author", "secretary", "HF_TOKEN_PATHS",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_the_value_of_such_a_name_is_a_secret(name: str) -> None:
    assert secret(name) and of_file(f"{name}_file")


@pytest.mark.parametrize("name", PLAIN)
def test_the_value_of_another_is_not(name: str) -> None:
    assert not secret(name)


def test_files_with_a_key_are_secret() -> None:
    assert of_file("ansible_ssh_private_key_file") and of_file("tls-key-file") and not of_file("values_file")
