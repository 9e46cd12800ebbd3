"""Coupled sampling: the token at a position is a function of the logits, the seed and the position alone."""
