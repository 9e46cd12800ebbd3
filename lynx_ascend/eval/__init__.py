"""What a codec does to a model's answers, measured on real KV. Needs transformers, not vLLM."""
