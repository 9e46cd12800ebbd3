"""The room where vLLM is touched: connector, scheduler, workers, sampling, layouts. Nothing outside it imports vllm."""
