"""How bytes move between a prefill and a decode engine. See `base` for the interface."""
