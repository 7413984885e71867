"""No secret gets out: not into a support archive, whatever shape it has there, nor into a pod, nor to a server it is not for.

Each planted shape is the example of a kind: how programs on a Spark write a secret that nobody has told this collection.
"""

from __future__ import annotations

import base64
import codecs
import copy
import html
import json
import os
import pathlib
import quopri
import re
import shlex
import textwrap
import time
import typing as t
import unicodedata
import urllib.parse

import httpx
import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError
from ansible_collections.dgxspark.cluster.plugins.plugin_utils import knowledge
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.bundle import reference, registry
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.kube.serving import serving
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.api import profile_of_recipe
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.planner.vocabulary import kept_secrets
from ansible_collections.dgxspark.cluster.plugins.plugin_utils.support.redact import Private, Redactor
from ansible_collections.dgxspark.cluster.tests.unit import kube_inputs as inputs

VLLM = "qwen3.5-122b-a10b-nvfp4-vllm"

# A secret with the form of one, one that is an ordinary word, and a phrase.
CODE, WORD, PHRASE = "Zq7vXw2mLp9R", "opensesame", "correct horse battery staple"
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
BCRYPT = "$2b$12$C6UzMDM.H6dfI/f/IKcEeO7ZQX8z3r0mQ1p1j3o1n0Z9l8k7j6h5G"
AGE = "AGE-SECRET-KEY-1QQPQYJ3ZQ5ZT7YQ8Q9Y0Z6X5W4V3U2T1S0R9Q8P7N6M5L4K3J2H1G0F9ED"
YESCRYPT = "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7"


def named(*, reverse: bool = False, indent: int | None = None, deep: int = 0) -> str:
    pair = {"name": "HF_TOKEN", "value": WORD}
    text = json.dumps([dict(reversed(pair.items())) if reverse else pair], indent=indent)
    for _level in range(deep):
        text = json.dumps({"log": text})
    return text


# The name of a shape, its text, and the secret in it.
PLANTED: dict[str, tuple[str, str]] = {
    "a list of arguments, JSON": (f'command: ["vllm", "serve", "m", "--api-key", "{WORD}"]', WORD),
    "a list of arguments, Python": (f"argv: ['sglang', '--api-key', '{WORD}', '--x']", WORD),
    "a list of arguments, YAML": (f"  - --api-key\n  - {WORD}\n  - --port", WORD),
    "kubectl describe: arguments": (f"    Args:\n      --api-key\n      {WORD}\n      --port\n", WORD),
    "kubectl describe: environment": (f"    Environment:\n      HF_TOKEN:      {WORD}\n", WORD),
    "kubectl describe: a phrase": (f"      DB_PASSWORD:   {PHRASE}\n", PHRASE),
    "name and value": (named(), WORD),
    "value and name": (named(reverse=True), WORD),
    "name and value, in lines": (named(indent=2), WORD),
    "value and name, in lines": (named(reverse=True, indent=2), WORD),
    "name and value, escaped": (named(deep=1), WORD),
    "name and value, escaped twice": (named(deep=2), WORD),
    "value and name, escaped": (named(reverse=True, deep=1), WORD),
    "name and value, YAML": (f"    - name: DB_PASSWORD\n      value: {WORD}", WORD),
    "name and value, YAML, quoted": (f'    - name: DB_PASSWORD\n      value: "{PHRASE}"', PHRASE),
    "name and value, Go": (f"{{Name:HF_TOKEN Value:{WORD} ValueFrom:nil}}", WORD),
    "name and value, Python": (f"EnvVar(name='HF_TOKEN', value='{WORD}')", WORD),
    "vLLM's arguments": (f"non-default args: {{'model': 'm', 'api_key': ['{WORD}'], 'port': 1}}", WORD),
    "vLLM's arguments, several keys": (f"non-default args: {{'api_key': ['{CODE}', '{WORD}'], 'port': 1}}", WORD),
    "SGLang's arguments": (f"server_args=ServerArgs(port=1, api_key='{WORD}', ssl_keyfile_password=None)", WORD),
    "a secret's wrapper": (f"hf_token=SecretStr('{WORD}')", WORD),
    "bytes": (f"{{'token': b'{CODE}'}}", CODE),
    "escaped JSON": (f'{{"log":"started with {{\\"api_key\\": \\"{WORD}\\"}}\\n"}}', WORD),
    "escaped JSON, a phrase": (json.dumps({"a": json.dumps({"password": PHRASE})}), PHRASE),
    "an option": (f"run --password {WORD} --host x", WORD),
    "an option with =": (f"run --password={WORD} --host x", WORD),
    "ps": (f"/usr/bin/python3 -m sglang --api-key {WORD} --port 1", WORD),
    "/proc/PID/cmdline": (f"python3\0--api-key\0{WORD}\0--port", WORD),
    "/proc/PID/environ": (f"A=1\0HF_TOKEN={WORD}\0B=2", WORD),
    "docker login": (f"docker login -u me -p {WORD} nvcr.io", WORD),
    "sshpass": (f"sshpass -p {WORD} ssh x", WORD),
    "curl -u": (f"curl -u me:{WORD} https://x", WORD),
    "netrc": (f"machine x login me password {WORD}", WORD),
    "systemd": (f'Environment="HF_TOKEN={WORD}" "X=1"', WORD),
    "SECRET_KEY": (f"SECRET_KEY={CODE}", CODE),
    "DJANGO_SECRET_KEY": (f"DJANGO_SECRET_KEY={WORD}", WORD),
    "AWS_SECRET_ACCESS_KEY": (f"AWS_SECRET_ACCESS_KEY={AWS}", "bPxRfiCY"),
    "SecretAccessKey": (f'"SecretAccessKey": "{AWS}"', "bPxRfiCY"),
    "WANDB_API_KEY": (f"export WANDB_API_KEY={WORD}", WORD),
    "camel case": (f"hfToken: {WORD}", WORD),
    "a quoted phrase": (f'passphrase = "{PHRASE}"', PHRASE),
    "a phrase in single quotes": (f"password: '{PHRASE}'", PHRASE),
    "a phrase with a shell's quotes": (f"export PASSPHRASE='it'\\''s {PHRASE}'", PHRASE),
    "a phrase without quotes": (f"vault passphrase: {PHRASE}", PHRASE),
    "a phrase in YAML": (f"password: {PHRASE}", PHRASE),
    "a text block of YAML": (f"ssl_keyfile_password: |\n  {WORD}\n  {PHRASE}\nnext: x", PHRASE),
    "a list of YAML": (f"api_keys:\n- {WORD}\n- {CODE}\nnext: 1", WORD),
    "with a comma": (f"password=a,b{WORD}!;x", WORD),
    "with a quote": (f'password=a"b{WORD}', WORD),
    "bcrypt": (f"user:{BCRYPT}", BCRYPT[8:]),
    "yescrypt": (YESCRYPT, "X3DX6M94c7o"),
    "/etc/shadow": ("root:$6$abcdefgh$0123456789abcdefABCDEF./0123456789abcdef:19000:0:", "0123456789abcdef"),
    "age": (f"# created\n{AGE}", AGE[17:]),
    "an AWS key's id": ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    "Telegram": ("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0", "AAHdq"),
    "Vault": ("hvs.CAESIJabcdefghijklmnop", "CAESIJabcdefghijklmnop"),
    "Azure": ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=Zq7vXw2mLp9R==;E", CODE),
    "a proxy": (f"HTTPS_PROXY=http://me:{WORD}@proxy:3128/", WORD),
    "a proxy without a scheme": (f"HTTPS_PROXY=me:{WORD}@proxy:3128", WORD),
    "a proxy, / in the password": (f"http://me:a@b/{WORD}@proxy:3128", WORD),
    "a proxy, @ in the password": (f"http://me:{WORD}@x@proxy:3128", WORD),
    "XML": (f"<password>{WORD}</password>", WORD),
    "an attribute": (f'<c password="{WORD}"/>', WORD),
    "a table": (f"| password | {WORD} |", WORD),
    "Ruby": (f"'password' => '{WORD}'", WORD),
    "a call": (f"set_password('{WORD}')", WORD),
    "a pair": (f"('HF_TOKEN', '{WORD}')", WORD),
    "a header": (f"X-Api-Key: {WORD}", WORD),
    "Authorization": (f"Authorization: Basic {WORD}", WORD),
    "Authorization, quoted": (f"'Authorization': 'Bearer {WORD}'", WORD),
    "a cookie": (f"Set-Cookie: id={WORD}; Path=/", WORD),
    "a query": (f"GET /x?api_key={WORD}&y=1", WORD),
    "a signed address": ("GET /x?X-Amz-Signature=0123abcd0123abcd&y=1", "0123abcd"),
    "a Secret of Kubernetes": (f'"stringData":{{"password":"{WORD}"}}', WORD),
    "Docker's logins": ('"auths":{"r.io":{"auth":"bWU6b3BlbnNlc2FtZQ=="}}', "bWU6b3BlbnNlc2FtZQ"),
    "K3s's token": (f"K3S_TOKEN='{WORD}'", WORD),
    "Wi-Fi": (f"psk={WORD}", WORD),
    "CSV": (f"host,user,password\nspark1,me,{WORD}\n", WORD),
    "CSV, further rows": (f"host,user,password\nspark1,me,other\nspark2,you,{WORD}", WORD),
    "CSV, first column": (f"api_key,host\n{WORD},spark1\n", WORD),
    "CSV, in the middle, \\r": (f"host,hf_token,user\r\nspark1,{WORD},me\r\n", WORD),
    "CSV, quoted": (f'"host","DB_PASSWORD"\n"spark, one","{PHRASE}"\n', PHRASE),
    "CSV, quotes in it": (f'host,password\nx,"a""{WORD}"\n', WORD),
    "CSV, of two lines": (f'host,password,user\nx,"first\n{WORD}",me\ny,{CODE},me', WORD),
    "CSV, the row after it": (f'host,password,user\nx,"first\nsecond",me\ny,{WORD},me', WORD),
    "CSV, two columns": (f"db password,note,api key\n{CODE},hello,{WORD}\n", WORD),
    "CSV, semicolons": (f"host;Passphrase\nspark1;{PHRASE}\n", PHRASE),
    "CSV in JSON": (json.dumps({"data": f"host,password\nspark1,{WORD}\n"}), WORD),
    "CSV in JSON, twice": (json.dumps({"a": json.dumps({"data": f"host,password\nspark1,{WORD}"})}), WORD),
    "CSV after words": (f"the list: host,password\nspark1,{WORD}", WORD),
    "CSV, name and value": (f"name,value\nHOME,/root\nDB_PASSWORD,{WORD}\n", WORD),
    "CSV, key and value": (f"key;note;value\nhf_token;mine;{WORD}\n", WORD),
    "TSV": (f"host\tsecret_key\nspark1\t{WORD}\n", WORD),
    "Markdown": (f"| host | password |\n|---|---|\n| spark1 | {WORD} |\n", WORD),
    "Markdown, later": (f"| host | password |\n|:--|--:|\n| spark1 | - |\n| spark2 | {WORD} |", WORD),
    "psql": (f" host   | password \n--------+----------\n spark1 | {WORD}\n", WORD),
    "kubectl get": (f"NAME      PASSWORD     AGE\nspark1    {WORD}   3d\nspark2    {CODE}         4d\n", WORD),
    "a list of values, in lines": (f'"api_keys": [\n  "{CODE}",\n  "{WORD}"\n]', WORD),
    "a list of arguments, in lines": (f'"args": [\n  "--api-key",\n  "{WORD}",\n  "--port"\n]', WORD),
    "Ansible's become": (f"ansible_become_pass: {WORD}", WORD),
    "Ansible's inventory": (f"spark1 ansible_ssh_pass={WORD} ansible_port=22", WORD),
    "a vault's": (f"vault_pass: {WORD}", WORD),
    "three quotes": (f'password = """\n{WORD}\n"""\nnext = 1', WORD),
    "a Dockerfile": (f"ENV HF_TOKEN {WORD}\nRUN true", WORD),
    "csh": (f"setenv DB_PASSWORD {WORD}", WORD),
    "fish": (f"set -gx HF_TOKEN {WORD}", WORD),
    "in base64, by its name": (f"HF_TOKEN_B64={WORD}", WORD),
    "a registry's token": (f'"identitytoken": "{WORD}"', WORD),
    "WireGuard": ("PresharedKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=", "yAnz5TF"),
    "Tailscale": (f"tailscale up --authkey {WORD}", WORD),
    "a Secret in YAML": (f"apiVersion: v1\ndata:\n  any: {AWS}\n  other: eA==\nkind: Secret\n", "bPxRfiCY"),
    "a Secret in YAML, as text": (f"kind: Secret\nstringData:\n  any: {PHRASE}\ntype: Opaque\n", PHRASE),
    "a Secret in JSON": (f'{{"kind":"Secret","data":{{"any":"{AWS}"}}}}', "bPxRfiCY"),
    "a Secret in JSON, in lines": (f'{{\n "data": {{\n  "any": "{AWS}"\n }},\n "kind": "Secret"\n}}', "bPxRfiCY"),
    "a Secret that was applied": (json.dumps({"a": json.dumps({"kind": "Secret", "stringData": {"any": WORD}})}), WORD),
    "a Secret with a key that seems one": (f'{{"kind": "Secret", "data": {{"db-password": "{CODE}"}}}}', CODE),
    "sudo's input": (f"echo {WORD} | sudo -S reboot", WORD),
    "chpasswd": (f"echo 'root:{WORD}' | chpasswd", WORD),
    "docker login's input": (f'echo "{WORD}" | docker login -u me --password-stdin r.io', WORD),
    "a here-string": (f"sudo -S reboot <<< '{WORD}'", WORD),
    "openssl": (f"openssl rsa -in k -passin pass:{WORD}", WORD),
    "ipmitool": (f"ipmitool -H bmc -U me -P {WORD} power on", WORD),
    "kubectl get, further rows": (
        f"NAME      API TOKEN     AGE\nspark1    <none>        3d\nspark2    {CODE}  4d\n",
        CODE,
    ),
}


@pytest.mark.parametrize("shape", PLANTED)
def test_a_secret_nobody_told_of_is_not_in_the_archive(shape: str) -> None:
    text, secret = PLANTED[shape]
    redactor = Redactor()
    redactor.learn([text])
    clean = redactor.redact(text)
    assert not [word for word in secret.split() if word in clean]
    assert "***" in clean and redactor.counts["secret"]
    assert redactor.redact(clean) == clean


# Secrets that are known, in every encoding that logs, manifests and dumps have: the name, and how it is written.
KNOWN = ("hunter2-secret-Zq7vX", 'p4"ss w/örd+Lamp&9', PHRASE, "k3sTok/en+With=Signs0123456789abcdefghij")


def _b(text: str) -> bytes:
    return text.encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


ENCODINGS: dict[str, t.Callable[[str], str]] = {
    "plain": lambda s: s,
    "upper": str.upper,
    "lower": str.lower,
    "reversed": lambda s: s[::-1],
    "rot13": lambda s: codecs.encode(s, "rot13"),
    "base64+0": lambda s: b64(s.encode()),
    "base64+1": lambda s: b64(_b("x" + s + "yz")),
    "base64+2": lambda s: b64(_b("xy" + s + "z")),
    "urlsafe+0": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "urlsafe+1": lambda s: base64.urlsafe_b64encode(_b("\xfbx"[1:] + s)).decode(),
    "urlsafe+2": lambda s: base64.urlsafe_b64encode(_b("xy" + s)).decode(),
    "base64 no padding": lambda s: b64(s.encode()).rstrip("="),
    "base64 wrapped": lambda s: "\n".join(textwrap.wrap(b64(_b(s)), 20)),
    "base64 escaped newlines": lambda s: "\\n".join(textwrap.wrap(b64(s.encode()), 10)),
    "base64 url": lambda s: urllib.parse.quote(b64(s.encode()), safe=""),
    "base64 json slash": lambda s: b64(s.encode()).replace("/", "\\/"),
    "base64 utf16": lambda s: b64(s.encode("utf-16-le")),
    "base64 of base64": lambda s: b64(_b(b64(s.encode()))),
    "base64 of base64+1": lambda s: b64(_b("x" + b64(_b("y" + s)))),
    "base64 of hex": lambda s: b64(_b(s.encode().hex())),
    "hex of base64": lambda s: _b(b64(s.encode())).hex(),
    "base64 of json": lambda s: b64(_b(json.dumps({"k": s}))),
    "base64 of reversed": lambda s: b64(_b(s[::-1])),
    "base32": lambda s: base64.b32encode(s.encode()).decode(),
    "base32+1": lambda s: base64.b32encode(_b("x" + s)).decode(),
    "base85": lambda s: base64.b85encode(s.encode()).decode(),
    "ascii85": lambda s: base64.a85encode(s.encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "hex:": lambda s: s.encode().hex(":"),
    "hex spaces": lambda s: s.encode().hex(" "),
    "xxd -p": lambda s: "\n".join(textwrap.wrap(s.encode().hex(), 16)),
    "hex pairs": lambda s: s.encode().hex(" ", 2),
    "\\x": lambda s: "".join(f"\\x{c:02x}" for c in s.encode()),
    "0x": lambda s: ", ".join(f"0x{c:02x}" for c in s.encode()),
    "octal": lambda s: "".join(f"\\{c:03o}" for c in s.encode()),
    "decimal": lambda s: str(list(s.encode())),
    "utf16 hex": lambda s: s.encode("utf-16-le").hex(),
    "url": lambda s: urllib.parse.quote(s, safe=""),
    "url plus": lambda s: urllib.parse.quote_plus(s),
    "url lower": lambda s: urllib.parse.quote(s, safe="").lower(),
    "url all": lambda s: "".join(f"%{c:02X}" for c in s.encode()),
    "url twice": lambda s: urllib.parse.quote(urllib.parse.quote(s, safe="")),
    "url all twice": lambda s: "".join(f"%25{c:02X}" for c in s.encode()),
    "json": lambda s: json.dumps(s)[1:-1],
    "json utf8": lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
    "json twice": lambda s: json.dumps(json.dumps(s))[2:-2],
    "json thrice": lambda s: json.dumps(json.dumps(json.dumps(s))),
    "\\u all": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "\\\\u all": lambda s: "".join(f"\\\\u{ord(c):04X}" for c in s),
    "\\u{}": lambda s: "".join(f"\\u{{{ord(c):x}}}" for c in s),
    "U+": lambda s: " ".join(f"U+{ord(c):04X}" for c in s),
    "html": lambda s: html.escape(s),
    "html dec": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "html hex": lambda s: "".join(f"&#x{ord(c):x};" for c in s),
    "html twice": lambda s: html.escape(html.escape(s)),
    "html amp dec": lambda s: "".join(f"&amp;#{ord(c)};" for c in s),
    "repr": lambda s: repr(s),
    "bytes": lambda s: repr(s.encode()),
    "ascii": lambda s: ascii(s),
    "shell": shlex.quote,
    "shell backslash": lambda s: re.sub(r"(\W)", r"\\\1", s),
    "yaml folded": lambda s: s[:9] + "\n    " + s[9:],
    "split concat": lambda s: f"'{s[:6]}' + '{s[6:]}'",
    "backslash newline": lambda s: s[:9] + "\\\n" + s[9:],
    "characters": lambda s: str(list(s)),
    "spaced": lambda s: " ".join(s),
    "dotted": lambda s: ".".join(s),
    "quoted printable": lambda s: quopri.encodestring(s.encode()).decode(),
    "nfd": lambda s: unicodedata.normalize("NFD", s),
    "mojibake": lambda s: s.encode().decode("latin-1"),
    "wide nul": lambda s: "\0".join(s),
}
LINES: tuple[t.Callable[[str], str], ...] = (
    lambda text: f"2026-11-28 12:00:01 INFO value {text} was set\n",
    lambda text: json.dumps({"a": text, "b": 1}),
)
REDACTORS = {secret: Redactor([Private("secret", secret)]) for secret in KNOWN}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_known_secret_is_found_in_every_encoding(encoding: str) -> None:
    for secret, redactor in REDACTORS.items():
        encoded = ENCODINGS[encoding](secret)
        for line in LINES:
            clean = redactor.redact(line(encoded))
            bare, left = (re.sub(r"[\s\"'\\,+]", "", text) for text in (encoded, clean))
            assert not [bare[at : at + 9] for at in range(3, len(bare) - 11) if bare[at : at + 9] in left]
            assert redactor.held(clean) is None and redactor.redact(clean) == clean


def test_what_has_no_secret_in_it_has_none_by_chance() -> None:
    """Letters and digits that make a secret only together, in another order or in part, stay."""
    redactor = Redactor([Private("secret", "hunter2-secret-Zq7vX"), Private("secret", "12345678")])
    for line in (
        "hunter and secret, hunter3-secret",
        "1234 567 8",
        "token 2026-11-28 12:34:56.789",
        "aHVudGVy c2VjcmV0",
    ):
        assert redactor.redact(line) == line


# What engines, Kubernetes and systemd write about tokens and keys that are none.
@pytest.mark.parametrize(
    "line",
    [
        "Decode batch. #running-req: 1, #token: 251000, token usage: 0.05, gen throughput (token/s): 31.5",
        "max_total_num_tokens=251000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=16",
        "'eos_token': '<|im_end|>', 'pad_token': '<|endoftext|>', \"image_token\": \"<|image_pad|>\"",
        "    Environment:\n      HF_TOKEN:  <set to the key 'token' in secret 'serve-hf'>  Optional: false\n      NCCL_NET:  IB\n",
        "      hf-token:\n        Type:        Secret (a volume populated by a Secret)\n        SecretName:  serve-default-hf-token\n",
        "server_args=ServerArgs(api_key=None, ssl_keyfile_password=None, hf_overrides={}, hf_token=None)",
        "HF_TOKEN_PATH=/run/secrets/dgxspark/token TOKENIZERS_PARALLELISM=false",
        "Multiple definitions in module; import hf_overrides hf_transfer hf_config_path sk-learn-contrib",
        "Missing key(s) in state_dict: model.layers.0.mlp.weight; unexpected key model.embed_tokens.weight",
        "first_pass: 17 forward pass=3 compass: north author: someone basic blocks: 3 bearer plug",
        "MountVolume.SetUp failed for volume hf-token : secret not found",
        "kv_cache_dtype=auto, cache_key: abcdef12, kv-bytes-per-token 12288",
        "name,tokens,max_tokens,token usage\nspark1,512,4096,0.5\nspark2,512,4096,0.7\n",
        "NAME              TYPE                 DATA   AGE\nserve-hf-token    Opaque               1      3d\n",
        "HF_TOKEN,WANDB_API_KEY\nHF_TOKEN,DB_PASSWORD\n",
        "name,value\nNCCL_NET,IB\nVLLM_USE_V1,1\n",
        "host,password\n\nanother text, of its own",
        "kind: ConfigMap\ndata:\n  any: value-of-1\n",
        "echo done | tee log; sudo systemctl restart k3s",
        "PWD=/home OLDPWD=/root",
        "SecretName: x\nData:\n  any: 12 bytes\n",
    ],
)
def test_what_only_speaks_of_tokens_and_keys_stays(line: str) -> None:
    assert Redactor().redact(line) == line


@pytest.mark.skipif(
    "DGXSPARK_FIXTURES" not in os.environ, reason="not run: DGXSPARK_FIXTURES names no folder of real logs"
)
def test_a_real_log_keeps_what_it_says() -> None:
    """Of engines' and NCCL's real logs nothing is taken for a secret: the beginning and the middle of each."""
    redactor = Redactor()
    for path in sorted(pathlib.Path(os.environ["DGXSPARK_FIXTURES"]).rglob("*.log")):
        text = path.read_text("utf-8", "replace")
        for part in (text[:6000], text[len(text) // 2 :][:3000]):
            assert "***" not in redactor.redact(part), path.name


HOSTILE = [
    ":", "a:", "ff:", ".", "1.", "@", "a@", "a", "-", "a-", "%41", "%2541", "=", '"', "\\", '\\"', "/", "http://", "http://a:b@", "token=",
    "password: ", "password", " ", "\n", "serial ", "QUJD", "a,", "/home/a", "1:2.", "&#", "[", '{"', "sk-a", "eyJa", "eyJaaaaaaaaaa.",
    "-----BEGIN A-----\n", "bearer ", "\\u0041", "--token ", "--token\n", "$2a$", '"name": "', '"value": "', "value: x name: ", "curl -u ",
    "login a password ", "api_key: [", "token:\n  - ", "password: |\n  a\n", "'", "password='", "identified by ", "://a:", "sig=",
    "kind: Secret\ndata:\n  a: b\n", 'kind: Secret data: {"a": "b", ', "echo a | ", '"--api-key",\n', '"api_keys": [\n', "password = \"\"\"\n",
    "password,", "password,a\nb,c\n", "a\tpassword\n", '"password,', "PASSWORD  ", "|password|\n", 'password,"', "key\\n",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=repr)
def test_time_is_linear_in_a_hostile_text(unit: str) -> None:
    """Four times the text takes about four times as long. What is quadratic takes sixteen times, and minutes for a real log."""
    redactor = Redactor([Private("secret", "hunter2-secret"), Private("spark", "spark1")])
    took = []
    for size in (4_000, 16_000):
        text = (unit * size)[:size]
        tries = []
        for _try in range(2):
            begin = time.process_time()
            redactor.redact(text)
            tries.append(time.process_time() - begin)
        took.append(min(tries))
    assert took[1] < 1.0 and took[1] < 9 * took[0] + 0.05


# Pods


SHOWN: list[tuple[str, dict[str, t.Any]]] = [
    ("AWS_SECRET_ACCESS_KEY", {"env": {"AWS_SECRET_ACCESS_KEY": WORD}}),
    ("DB_PASSWORD", {"env": {"DB_PASSWORD": WORD}}),
    ("WANDB_API_KEY", {"env": {"WANDB_API_KEY": WORD}}),
    ("HUGGINGFACE_TOKEN", {"env": {"HUGGINGFACE_TOKEN": WORD}}),
    ("NGC_API_KEY", {"env": {"NGC_API_KEY": WORD}}),
    ("MY_LICENSE_KEY", {"env": {"MY_LICENSE_KEY": WORD}}),
    ("PGPASSWORD", {"env": {"PGPASSWORD": WORD}}),
    ("HTTPS_PROXY", {"env": {"HTTPS_PROXY": f"http://me:{WORD}@proxy:3128"}}),
    ("https_proxy", {"env": {"https_proxy": f"me:{WORD}@proxy:3128"}}),
    ("HF_ENDPOINT", {"env": {"HF_ENDPOINT": f"https://me:{WORD}@mirror.example"}}),
    ("MISC", {"env": {"MISC": f"hf_{CODE}{WORD}"}}),
    ("--ssl-keyfile-password", {"argv": ["--ssl-keyfile-password", WORD]}),
    ("--s3-secret-access-key", {"argv": [f"--s3-secret-access-key={WORD}"]}),
    ("--kv-transfer-config", {"argv": ["--kv-transfer-config", json.dumps({"extra": {"api_key": WORD}})]}),
    ("--model-loader-extra-config", {"argv": [f"--model-loader-extra-config={json.dumps({'password': WORD})}"]}),
    ("--otlp-traces-endpoint", {"argv": ["--otlp-traces-endpoint", f"http://me:{WORD}@collector:4317"]}),
]


def test_no_shipped_profile_holds_what_looks_like_a_secret() -> None:
    for entry in knowledge.shared("profile").values():
        for layer in (entry, *entry.get("variants", {}).values()):
            kept_secrets.of_profile((layer or {}).get("settings") or {}, (layer or {}).get("environment") or {})


@pytest.mark.parametrize(("name", "change"), SHOWN, ids=[name for name, _change in SHOWN])
def test_no_secret_goes_into_a_pod_as_text(name: str, change: dict[str, t.Any]) -> None:
    made = copy.deepcopy(inputs.plan(VLLM))
    made["ranks"][0]["argv"] += change.get("argv", [])
    made["ranks"][0]["env"] |= change.get("env", {})
    with pytest.raises(CollectionError, match=rf"rank 0 gets a secret by {name}, which everyone can see") as caught:
        serving(made, inputs.fabric(4), {"image": inputs.PINNED})
    assert WORD not in str(caught.value)


@pytest.mark.parametrize(
    ("of", "name", "value"),
    [
        ("environment", "DB_PASSWORD", WORD),
        ("environment", "HTTPS_PROXY", f"http://me:{WORD}@proxy:3128"),
        ("settings", "ssl_keyfile_password", WORD),
        ("settings", "kv_transfer_config", {"extra": {"api_key": WORD}}),
        ("settings", "otlp_traces_endpoint", f"http://me:{WORD}@collector:4317"),
    ],
)
def test_no_secret_goes_into_a_plan(of: str, name: str, value: t.Any) -> None:
    with pytest.raises(CollectionError, match=rf"{of}\.{name} is or holds a secret, which everyone can see") as caught:
        inputs.plan(VLLM, **{of: {name: value}})
    assert WORD not in str(caught.value)


def test_a_recipe_s_secrets_are_refused_and_not_shown() -> None:
    env = {
        "DB_PASSWORD": WORD,
        "HTTPS_PROXY": f"http://me:{WORD}@proxy:3128",
        "MISC": f"hf_{CODE}{WORD}",
        "VLLM_USE_V1": "1",
    }
    command = f"vllm serve acme/m --otlp-traces-endpoint http://me:{WORD}@collector:4317 --ssl-keyfile-password {WORD}"
    text = json.dumps({"recipe_version": "2", "model": "acme/m", "runtime": "vllm", "env": env, "command": command})
    made = profile_of_recipe(text, "r.yaml")
    assert WORD not in json.dumps(made)
    assert [line["became"] for line in made["recipe"]["lines"]].count("refused") == 5
    assert made["environment"] == {"VLLM_USE_V1": "1"}


# Registries


def asked(mirror: str, login_of: str) -> tuple[list[httpx.Request], registry.Registry]:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if request.headers.get("authorization"):
            return httpx.Response(200, json={"token": "x"})
        realm = f"{request.url.scheme}://{request.url.netloc.decode()}/token"
        return httpx.Response(401, headers={"www-authenticate": f'Bearer realm="{realm}",service="x"'})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    return requests, registry.Registry(client, {"docker.io": mirror} if mirror else {}, {login_of: f"me:{WORD}"})


@pytest.mark.parametrize(
    ("mirror", "login_of", "says"),
    [
        ("http://mirror.example:5000", "docker.io", "login for mirror.example:5000"),
        ("http://mirror.example:5000", "mirror.example:5000", "would get its login in clear"),
        ("https://mirror.example", "docker.io", "login for mirror.example"),
        (f"http://me:{WORD}@mirror.example", "docker.io", "the address has a login in it"),
        (f"https://me:{WORD}@mirror.example", "docker.io", "the address has a login in it"),
    ],
)
def test_a_registry_s_login_goes_nowhere_else(mirror: str, login_of: str, says: str) -> None:
    requests, client = asked(mirror, login_of)
    with pytest.raises(CollectionError, match=says) as caught:
        client.image(reference.parse("acme/engine:1.2"), "arm64")
    assert WORD not in str(caught.value)
    coded = base64.b64encode(f"me:{WORD}".encode()).decode()
    assert not [each for each in requests if coded in str(each.headers) or WORD in str(each.url)]


@pytest.mark.parametrize(("mirror", "login_of"), [("", "docker.io"), ("https://mirror.example", "mirror.example")])
def test_it_goes_where_it_is_for(mirror: str, login_of: str) -> None:
    requests, client = asked(mirror, login_of)
    with pytest.raises(CollectionError):
        client.image(reference.parse("acme/engine:1.2"), "arm64")
    assert [each for each in requests if each.headers.get("authorization", "").startswith("Basic ")]
