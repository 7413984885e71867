"""The scanner: what it finds and counts, whatever the length of lines and pieces; and that no secret gets out."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.dgxspark.cluster.plugins.module_utils import signatures as s
from ansible_collections.dgxspark.cluster.plugins.module_utils.values import CollectionError

PATTERNS = s.compile_patterns(
    [
        {"id": "a.oom", "pattern": r"Killed process (?P<pid>\d{1,8})"},
        {"id": "a.retry", "pattern": r"retr(?:y|ies) \d+"},
        {"id": "a.either", "pattern": r"alpha|beta"},
    ]
)


def scan(text: str) -> dict[str, s.Hit]:
    reading = s.scan("log", s.pieces(io.BytesIO(text.encode())), PATTERNS)
    same = s.scan("log", s.numbered(text.removesuffix("\n")), PATTERNS)
    assert [(h.id, h.first, h.last, h.count) for h in same.hits] == [
        (h.id, h.first, h.last, h.count) for h in reading.hits
    ]
    return {hit.id: hit for hit in reading.hits}


def test_first_last_count_and_what_was_captured() -> None:
    found = scan("x\nKilled process 12\nretry 1\nKilled process 13 Killed process 14\n\nretries 2")
    assert (found["a.oom"].first, found["a.oom"].last, found["a.oom"].count) == (2, 4, 2)
    assert found["a.oom"].values == {"pid": "12"}
    assert (found["a.retry"].first, found["a.retry"].last, found["a.retry"].count) == (3, 6, 2)
    assert "a.either" not in found


@given(
    before=st.integers(0, 3 * s.PIECE),
    between=st.integers(0, 2 * s.PIECE),
    after=st.integers(0, s.PIECE),
    crlf=st.booleans(),
)
def test_a_line_of_any_length_is_read_whole_and_counts_once(before: int, between: int, after: int, crlf: bool) -> None:
    line = "~" * before + "Killed process 12" + "~" * between + "Killed process 13" + "~" * after
    found = scan("first\n" + line + ("\r\n" if crlf else "\n") + "Killed process 14\n")
    assert (found["a.oom"].first, found["a.oom"].last, found["a.oom"].count) == (2, 3, 2)
    assert found["a.oom"].excerpt.count("Killed process 1") >= 1
    assert len(found["a.oom"].excerpt) <= s.EXCERPT + 10


def test_bytes_that_are_no_text_do_not_stop_it() -> None:
    reading = s.scan("log", s.pieces(io.BytesIO(b"\xff\xfe \xc3( beta\nalpha")), PATTERNS)
    assert [(hit.id, hit.count) for hit in reading.hits] == [("a.either", 2)]


def test_memory_does_not_grow_with_the_log() -> None:
    class Endless(io.RawIOBase):
        left, most = 4000, 0

        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None and 0 < size <= 2 * s.PIECE
            self.left -= 1
            return b"." * size if self.left > 0 else b""

    assert s.scan("log", s.pieces(Endless()), PATTERNS).lines == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("Not enough memory", "Not enough memory"),
        (r"Not enough\. Try", "Not enough. Try"),
        (r"colou?r of it", "r of it"),
        (r"ab{0,3}cde", "cde"),
        (r"(?:abc|def) gh", " gh"),
        ("abc|def", ""),
        ("(?i)abc", ""),
        (r"x[a-z\]]+yz\d", "yz"),
        (r"(?<!Memory )Out of (?!me)", "Out of "),
        (r"\bword\b", "word"),
    ],
)
def test_the_literal_of_a_pattern(pattern: str, literal: str) -> None:
    assert s.literal(pattern) == literal


@given(st.from_regex(r"(?:ab|c)[de]{1,3}fg\.(?:h|ij)?kl{0,2}", fullmatch=True))
def test_every_match_has_the_literal(text: str) -> None:
    assert s.literal(r"(?:ab|c)[de]{1,3}fg\.(?:h|ij)?kl{0,2}") in text


def test_a_bad_pattern_is_named() -> None:
    with pytest.raises(CollectionError, match=r"x\.y: pattern"):
        s.compile_patterns([{"id": "x.y", "pattern": "("}])


SECRETS = [
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "nvapi-0123456789abcdefABCDEF",
    "sk-proj-0123456789abcdef",
    "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
    "K10abcdef0123456789abcdef0123456789abcdef::server:0123456789abcdef",
    "eyJhbGciOiJSUzI1NiIsImtpZCI6.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "HF_TOKEN={}", "'{}'", "(x) {} y", 'Authorization: "{}"', "url?t={}&x=1"])
def test_tokens_are_masked_wherever_they_stand(secret: str, around: str) -> None:
    masked = s.mask(f"alpha {around.format(secret)} beta")
    assert secret not in masked
    assert secret[-12:] not in masked
    assert masked.startswith("alpha ") and masked.endswith(" beta")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.def-123", "abc.def-123"),
        ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("--api-key 9f8e7d6c5b4a", "9f8e7d6c5b4a"),
        ("api_key='9f8e7d6c5b4a'", "9f8e7d6c5b4a"),
        ("password: correcthorse", "correcthorse"),
        ('{"password": "123456"}', "123456"),
        ("K3S_TOKEN=0a1b2c3d4e5f", "0a1b2c3d4e5f"),
        ("https://user:pa55word@host/path", "pa55word"),
        ("client_secret=abcdef", "abcdef"),
        ("private_key=9f8e7d6c5b4a", "9f8e7d6c5b4a"),
        ('{"auth": "dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
    ],
)
def test_what_stands_behind_a_telling_name_is_masked(text: str, secret: str) -> None:
    assert secret not in s.mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "#new-token: 8192, #cached-token: 131072, token usage: 0.98",
        "max_total_tokens=131072",
        "Failed to read token: permission denied",
        "time=2026-11-21T15:40:00 level=error",
        "Node password rejected, duplicate hostname",
        "Killed process 1306511 (python3)",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert s.mask(text) == text


@given(st.text(max_size=3000), st.sampled_from(SECRETS), st.text(max_size=3000), st.integers(0, 6000))
def test_an_excerpt_has_no_secret_and_no_control_character(before: str, secret: str, after: str, start: int) -> None:
    shown = s.excerpt(f"{before} {secret} {after}", start)
    assert secret[4:20] not in shown
    assert not re.search(r"[\x00-\x1f\x7f]", shown)


@given(st.integers(1, s.PIECE))
def test_a_token_cut_by_pieces_is_masked(before: int) -> None:
    token = "eyJ" + "a1" * 300 + "." + "b2" * 300 + ".c3"
    hit = scan(f"{'x ' * (before // 2)}token {token} alpha\n")["a.either"]
    assert "b2b2b2" not in hit.excerpt and "a1a1a1" not in hit.excerpt


def test_colours_are_taken_out() -> None:
    assert s.excerpt("\x1b[1;36m(Engine pid=1)\x1b[0;0m ERROR\x07") == "(Engine pid=1) ERROR"


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_an_excerpt_ends_with_the_lines_end(before: int, between: int) -> None:
    shown = s.excerpt(f"{'x ' * before}Failed to create pod sandbox: {'y ' * between}failed to find plugin", 2 * before)
    assert "Failed to create" in shown and shown.endswith("failed to find plugin")
    assert len(shown) <= s.EXCERPT + 10


@given(st.lists(st.text("alphbet ~", max_size=20), max_size=30))
def test_what_passes_on_to_another_reader_is_the_log(texts: list[str]) -> None:
    log = "\n".join([*texts, "alpha " + "beta " * 1000])
    seen = s.Scan(PATTERNS)
    assert "".join(seen.passing(s.numbered(log))) == log.replace("\n", "")
    assert seen.reading("log") == s.scan("log", s.numbered(log), PATTERNS)


@pytest.mark.parametrize(
    ("opens", "prefix"),
    [
        ("", ""),
        ("[2026-11-29 10:16:23] Scheduler hit an exception: ", ""),
        (
            "(EngineCore pid=77) ERROR 11-26 12:00:01 [core.py:9] ",
            "(EngineCore pid=77) ERROR 11-26 12:00:01 [core.py:9] ",
        ),
        ("[rank1]: ", "[rank1]: "),
    ],
)
def test_where_a_line_opens_a_traceback_its_end_is_shown(opens: str, prefix: str) -> None:
    pattern = s.compile_patterns([{"id": "a.opens", "pattern": r"Traceback \(most recent call last\)"}])
    lines = [
        "  File x.py, line 1, in y",
        "    raise ValueError(MemoryError: no)",
        "x.Wrong.Error: no kernel",
        "KeyError: 1",
    ]
    text = "\n".join([f"{opens}Traceback (most recent call last):", *(prefix + line for line in lines)])
    (hit,) = s.scan("log", s.numbered(text), pattern).hits
    assert hit.excerpt == f"{opens}Traceback (most recent call last): ... x.Wrong.Error: no kernel"


def test_a_traceback_that_does_not_end_is_not_waited_for() -> None:
    opened = s.compile_patterns([{"id": "a.opens", "pattern": r"Traceback \(most recent call last\)"}])
    text = "Traceback (most recent call last):\n" + "  File\n" * s.TRACED + "ValueError: of something else"
    (hit,) = s.scan("log", s.numbered(text), opened).hits
    assert hit.excerpt == "Traceback (most recent call last):"
