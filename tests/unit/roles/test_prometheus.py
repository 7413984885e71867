"""A real Prometheus server: it scrapes a Spark's metrics with our configuration, loads the rules, and answers every query.

Its hour of history is what the program itself writes for fake Sparks, one for each fault.
"""

from __future__ import annotations

import http.server
import json
import pathlib
import shutil
import subprocess
import threading
import time
import typing as t
import urllib.parse
import urllib.request

import pytest

from ansible_collections.dgxspark.cluster.plugins.module_utils import facts, metrics
from ansible_collections.dgxspark.cluster.tests.support.metrics_node import UID, Cluster
from ansible_collections.dgxspark.cluster.tests.support.ports import free_port
from ansible_collections.dgxspark.cluster.tests.support.prometheus import (
    FILES,
    PROMTOOL,
    RULES,
    panels,
    promtool,
    recorded,
    rules,
)

PROMETHEUS = shutil.which("prometheus") or (
    PROMTOOL and shutil.which(str(pathlib.Path(PROMTOOL).parent / "prometheus"))
)
pytestmark = pytest.mark.skipif(
    not (PROMTOOL and PROMETHEUS), reason="prometheus: not run. It is not in PATH (tools/with_prometheus.py fetches it)"
)
ENGINE = 'vllm:generation_tokens_total{model_name="glm"} 600\n'
NODES, SERVED = ("192.0.2.11:9100", "192.0.2.12:9100"), "192.0.2.11:30000"  # the addresses of scrape.yml


class Exporter(http.server.BaseHTTPRequestHandler):
    """Stands in for a node exporter and an engine: returns what `pages` has for its port."""

    pages: t.ClassVar[dict[int, str]] = {}

    def do_GET(self) -> None:
        body = self.pages[self.server.server_address[1]].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: t.Any) -> None:
        pass


def exporter(page: str) -> str:
    """Serve a page; return the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    Exporter.pages[server.server_address[1]] = page
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_address[1]}"


class Prometheus:
    """The server, on its data and configuration."""

    def __init__(self, folder: pathlib.Path, configuration: str) -> None:
        port = free_port()
        (folder / "prometheus.yml").write_text(configuration)
        self.url = f"http://127.0.0.1:{port}/api/v1"
        words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        words += [f"--web.listen-address=127.0.0.1:{port}", f"--web.console.libraries={folder}", "--log.level=error"]
        self.process = subprocess.Popen([str(PROMETHEUS), *words], cwd=folder)

    def ask(self, path: str, **words: t.Any) -> t.Any:
        with urllib.request.urlopen(f"{self.url}/{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def until(self, path: str, fits: t.Callable[[t.Any], bool]) -> t.Any:
        """Ask until the answer fits, for a minute; return the last one."""
        said: t.Any = None
        for _each in range(240):
            try:
                said = self.ask(path)
                if fits(said):
                    break
            except OSError:
                assert self.process.poll() is None, "prometheus ended"
            time.sleep(0.25)
        return said


def history(series: t.Iterable[t.Mapping[str, str]], end: float) -> str:
    """Write an hour of series, in promtool's short form, as OpenMetrics."""
    lines = []
    for each in series:
        start, _plus, rest = each["values"].partition("+")
        step = float(rest.partition("x")[0])
        stamp = each["series"].startswith("dgxspark_metrics_collected")
        for minute in range(61):
            at = end - 60 * (60 - minute)
            lines.append(f"{each['series']} {at if stamp else float(start) + step * minute:.0f} {at:.0f}")
    return "\n".join([*lines, "# EOF\n"])


def spark(folder: pathlib.Path, model: str = "") -> Cluster:
    """Make a Spark that matches its plan, with rank 1 of a model where one is named."""
    made = Cluster(folder)
    if model:
        made.rank("901", 1)
        (made.node.root / f"var/log/pods/models_{model}-rank1-0_{UID}").mkdir(parents=True)
    return made


def sparks(folder: pathlib.Path) -> dict[str, Cluster]:
    """Make a healthy one that serves, and one for each fault, by the alert that it should raise."""
    made = {name: spark(folder / name) for name in FAULTS}
    made["DgxSparkSocketFallback"] = spark(folder / "sockets", "serve-slow")
    made["well"] = spark(folder / "well", "serve-glm")
    link = [("fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v2", "enp1s0f0v0")]
    made["DgxSparkGidDrift"].node.gids("rocep1s0f0v0", link)
    made["DgxSparkFabricDown"].node.down("enP2p1s0f0v1")
    made["DgxSparkMemoryFloor"].settings["memory_floor_bytes"] = 100 * 2**30
    made["DgxSparkThrottled"].gpu(clock=900, power=20)
    made["DgxSparkVerifyFailed"].settings["verify"] = {"passed": False, "finished": 1764020000.0}
    made["DgxSparkNotRead"].node.run.on(("nvidia-smi",), (9, "", "No devices were found"))
    return made


FAULTS = (
    "DgxSparkGidDrift",
    "DgxSparkFabricDown",
    "DgxSparkMemoryFloor",
    "DgxSparkThrottled",
    "DgxSparkVerifyFailed",
    "DgxSparkNotRead",
)
# These need a rank that disappears, or a file that is no longer written: promtool tests them in test_spark_metrics.py.
NOT_HERE = {"DgxSparkRankLost", "DgxSparkMetricsStale"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[Prometheus, float]]:
    """The server with that hour, which ended two hours ago, and what it scrapes now."""
    folder = tmp_path_factory.mktemp("prometheus")
    end = float(int(time.time()) - 7200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "SETTLE_S", 0.0)
        made = sparks(folder)
        series = [
            each
            for name, cluster in made.items()
            for each in recorded(cluster, f"{name}:9100", 1000 if name == "DgxSparkSocketFallback" else 1000000)
        ]
        text, said = metrics.collect(made["well"].settings, made["well"].place, time.time())
        assert said == []
    for model in ("serve-glm", "serve-slow"):
        tokens = f'vllm:generation_tokens_total{{instance="{model}:30000",model="{model}"}}'
        series.append({"series": tokens, "values": "0+600x60"})
    (folder / "hour.om").write_text(history(series, end))
    done = promtool("tsdb", "create-blocks-from", "openmetrics", folder / "hour.om", folder / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(RULES, folder / "alerts.yml")
    told = (FILES / "scrape.yml").read_text().replace("/etc/prometheus/dgxspark-alerts.yml", "alerts.yml")
    told = told.replace(", ".join(f'"{node}"' for node in NODES), f'"{exporter(text)}"').replace(
        SERVED, exporter(ENGINE)
    )
    made_up = Prometheus(folder, "global: {scrape_interval: 1s, evaluation_interval: 1s}\n" + told)
    yield made_up, end
    made_up.process.terminate()
    made_up.process.wait(30)


@pytest.mark.more
def test_it_scrapes_nodes_and_engines_by_our_configuration(server: tuple[Prometheus, float]) -> None:
    prometheus, _end = server
    seen = prometheus.until("targets", lambda said: {each["health"] for each in said["activeTargets"]} == {"up"})
    assert {each["labels"]["job"] for each in seen["activeTargets"]} == {"dgxspark-node", "dgxspark-engine"}, seen
    assert {each["health"] for each in seen["activeTargets"]} == {"up"}, seen
    (found,) = prometheus.ask("query", query='dgxspark_rank{job="dgxspark-node"}')["result"]
    assert found["metric"]["model"] == "serve-glm"
    (found,) = prometheus.ask("query", query='vllm:generation_tokens_total{job="dgxspark-engine"}')["result"]
    assert found["metric"]["model"] == "serve-glm", "the label by which the rules know whose ranks it has"
    groups = prometheus.until(
        "rules", lambda said: all(rule["health"] == "ok" for group in said["groups"] for rule in group["rules"])
    )["groups"]
    assert {(rule["name"], rule["health"]) for group in groups for rule in group["rules"]} == {
        (rule["alert"], "ok") for rule in rules()
    }


@pytest.mark.more
def test_each_rule_finds_the_spark_with_its_fault_and_no_other(server: tuple[Prometheus, float]) -> None:
    prometheus, end = server
    for rule in rules():
        found = prometheus.ask("query", query=rule["expr"], time=end)["result"]
        by = {each["metric"].get("instance") or each["metric"]["model"] for each in found}
        wanted = {"DgxSparkSocketFallback": "serve-slow"}.get(rule["alert"], f"{rule['alert']}:9100")
        assert by == (set() if rule["alert"] in NOT_HERE else {wanted}), rule["alert"]


@pytest.mark.more
def test_each_panel_of_the_dashboard_has_something_to_show(server: tuple[Prometheus, float]) -> None:
    prometheus, end = server
    for query in panels():
        assert prometheus.ask("query_range", query=query, start=end - 600, end=end, step=60)["result"], query
