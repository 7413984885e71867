"""What a plan says, beside what the engine said of itself: settings by its page of settings, memory by its log."""

from __future__ import annotations

import json
import re
import typing as t

Plain = dict[str, t.Any]
# Settings that no page of the engine shows: environment variables, and the plan's own.
UNSEEN = frozenset({"nccl_transport", "disable_deep_gemm", "enable_spec_v2", "allow_longer_context"})
NAMES = {
    "fp4_gemm_backend": "fp4_gemm_runner_backend",
    "fp8_gemm_backend": "fp8_gemm_runner_backend",
    "model": "model_path",
}
NUMBER = r"([\d,.]+)"
# SGLang 0.5.12 model_executor/model_runner.py, model_runner_kv_cache_mixin.py, mem_cache/memory_pool.py, managers/scheduler.py. What it
# calls GB is 1024^3 bytes.
LINES = {
    "free": rf"Load weight begin\. avail mem={NUMBER} GB",
    "weights": rf"Load weight end\..* mem usage={NUMBER} GB",
    "tokens": rf"KV Cache is allocated\..*?#tokens: {NUMBER}",
    "kv": rf"KV Cache is allocated\..*K size: {NUMBER} GB, V size: {NUMBER} GB",
    "kv_mla": rf"KV Cache is allocated\..* KV size: {NUMBER} GB",
    "mamba": r"Mamba Cache is allocated\.(.*)",
    "max_tokens": rf"max_total_num_tokens={NUMBER}",
    "running": rf"max_running_requests={NUMBER}",
    "left": rf"available_gpu_mem={NUMBER} GB",
    "graphs": rf"Capture cuda graph end\..*mem usage={NUMBER} GB",
    "pools_end": rf"Memory pool end\. avail mem={NUMBER} GB",
}


def settings(resolved: t.Mapping[str, Plain], info: Plain) -> dict[str, tuple[str, t.Any, t.Any]]:
    """Return each setting's verdict, `agrees`, `differs` or `unknown`, with the plan's value and the engine's.

    resolved: a plan's; info: SGLang's /server_info. Settings that the page does not show are left out.
    """
    found = {}
    for name, told in resolved.items():
        theirs_name = NAMES.get(name, name)
        if name in UNSEEN or theirs_name not in info:
            continue
        theirs, ours = info[theirs_name], told["value"]
        if isinstance(ours, dict) and isinstance(theirs, str):
            theirs = json.loads(theirs)
        if told["by"] == "unknown":
            verdict = "unknown"
        else:
            verdict = "agrees" if ours == theirs or (ours in (None, False) and theirs in (None, False)) else "differs"
        found[name] = (verdict, ours, theirs)
    return found


def read(log: str) -> dict[str, list[float]]:
    """Return the figures of a rank's log by name, each as often as it is there: the target's first, then the drafter's."""
    found = {}
    for name, pattern in LINES.items():
        if name == "mamba":
            sizes = [re.findall(r"([\d.]+) ?GB", line) for line in re.findall(pattern, log)]
            if sizes:
                found[name] = [sum(map(float, each)) for each in sizes]
        elif matches := re.findall(pattern, log):
            found[name] = [
                sum(float(part.replace(",", "").rstrip(".")) for part in (each if isinstance(each, tuple) else (each,)))
                for each in matches
            ]
    return found
