"""Tests of the codec: the format on the wire, its bound, its baselines."""
