"""The metrics of an engine that serves, as vLLM 0.33.0 writes them."""

from __future__ import annotations

VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} 8.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 2.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.43
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {prompted}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {written}
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} {finished}
vllm:request_success_total{{engine="0",finished_reason="length",model_name="m"}} 5.0
"""
