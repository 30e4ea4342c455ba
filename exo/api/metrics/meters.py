"""What this process counts and times, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from exo.api.metrics.pace import Pace
from exo.domain.ids import ModelId
from exo.domain.state import EndedGeneration

FIRST_TOKEN = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
"""Bounds of a histogram, seconds."""
GAP = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
STAGE = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 300.0, 1800.0)
UNMATCHED = "unmatched"
"""The route of a request that has none."""


class Meters:
    """Names are those of vLLM where the meaning is the same, so that its dashboards work; docs/api.md lists them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = self._counter("http_requests", "HTTP requests answered", "method", "handler", "status")
        self._ended = self._counter("vllm:request_success", "Generations that ended", "model_name", "finished_reason")
        self._prompt = self._counter("vllm:prompt_tokens", "Tokens of prompts", "model_name", "key")
        self._cached = self._counter("vllm:prompt_tokens_cached", "Of them, not computed anew", "model_name", "key")
        self._output = self._counter("vllm:generation_tokens", "Tokens generated", "model_name", "key")
        self._first = self._histogram("vllm:time_to_first_token_seconds", "To the first output", FIRST_TOKEN)
        self._gap = self._histogram("vllm:inter_token_latency_seconds", "From each output to the next", GAP)
        self._queue = self._histogram("vllm:request_queue_time_seconds", "In the queue", STAGE)
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", "In prefill", STAGE)
        self._decode = self._histogram("vllm:request_decode_time_seconds", "In decode", STAGE)

    def answered(self, method: str, route: str, status: int) -> None:
        """A response has begun. `route` is a template such as `/v1/models/{name}`, empty where none fits."""
        self._requests.labels(method, route or UNMATCHED, str(status)).inc()

    def pace(self, model_id: ModelId, now: float) -> Pace:
        """What times the output of a generation that begins now."""
        return Pace(now, self._first.labels(model_id).observe, self._gap.labels(model_id).observe)

    def ended(self, generation: EndedGeneration) -> None:
        """A generation that this process asked for is over."""
        model_id, key, usage, timings = generation.model_id, generation.key, generation.usage, generation.timings
        self._ended.labels(model_id, generation.finish_reason).inc()
        self._prompt.labels(model_id, key).inc(usage.prompt_tokens)
        self._cached.labels(model_id, key).inc(usage.cached_tokens)
        self._output.labels(model_id, key).inc(usage.completion_tokens)
        if usage.completion_tokens:
            took = timings.wait + timings.prefill + timings.decode
            self._queue.labels(model_id).observe(max(0.0, generation.ended_at - generation.queued_at - took))
            self._prefill.labels(model_id).observe(timings.prefill)
            self._decode.labels(model_id).observe(timings.decode)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
        return Histogram(name, f"Seconds: {text}", ("model_name",), buckets=bounds, registry=self.registry)
