"""Rank death of a real distributed group: four ranks of torch.distributed (gloo), one of them killed."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils.programs.rank import supervisor
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.unit.kube_ranks import PATIENCE, Group, alive

ENGINE = """
import http.server, json, os, pathlib, sys, threading
import torch, torch.distributed as dist
api, folder, rank, port = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with (folder / f"starts-{rank}").open("a") as file:
    file.write(f"{os.getpid()}\\n")
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=4)
asked = threading.Event()
answered = threading.Event()
total = torch.zeros(1)
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.answer({"data": [{"id": "m"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answered.clear()
        asked.set()
        answered.wait()
        self.answer({"choices": [{"text": str(int(total[0]))}], "usage": {"completion_tokens": 1}})
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
if rank == 0:
    threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", api), Handler).serve_forever, daemon=True).start()
while True:
    if rank == 0:
        asked.wait()
        asked.clear()
    mine = torch.tensor([10.0 ** rank])
    dist.all_reduce(mine)
    total[:] = mine
    answered.set()
"""


@pytest.mark.long
def test_a_killed_rank_ends_the_group_which_comes_back_and_works(engine: pathlib.Path, tmp_path: pathlib.Path) -> None:
    python = str(engine / "python")
    group = Group(tmp_path)
    (tmp_path / "torch_engine.py").write_text(ENGINE, encoding="utf-8")
    meeting = str(free_port())
    words = [str(tmp_path / "torch_engine.py"), str(group.api), str(tmp_path)]
    for rank in range(4):
        group.configure(rank, argv=[python, *words, str(rank), meeting], before=[])
    try:
        group.start()
        group.wait()
        # The first token is a sum over all four.
        assert "the first tokens: '1111'" in group.log(0)
        first = [group.engines(rank, 1)[0] for rank in range(4)]
        os.kill(first[2], signal.SIGKILL)
        killed = time.monotonic()
        codes = group.ended()
        print(f"\nthe group ended {time.monotonic() - killed:.1f} s after rank 2 was killed")
        assert codes[2] == 128 + signal.SIGKILL
        assert [codes[rank] for rank in (0, 1, 3)] == [supervisor.STATUS["lost"]] * 3
        assert not any(map(alive, first))
        # Ranks that lost a peer hang in all_reduce until gloo's own timeout, 30 minutes: that is not what ended them.
        assert time.monotonic() - killed < PATIENCE
        for rank in range(4):
            group.configure(rank, argv=[python, *words, str(rank), str(meeting)], before=[])
        again = time.monotonic()
        group.start()
        group.wait()
        print(f"it served again {time.monotonic() - again:.1f} s after it was started")
        assert group.log(0).count("the first tokens: '1111'") == 2
    finally:
        group.close()
