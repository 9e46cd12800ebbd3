"""Triton kernels of the lynx codecs, for CUDA: from the paged cache and into it. `codec/cuda.py` starts them.

Importing a module of this folder (but `tables`) needs triton; nothing else does. Not run on a GPU so far:
checked bit for bit in Triton's interpreter, and compiled for sm_90.

The language that they keep to is what triton-ascend 3.2 takes by its documentation (docs/sources/python-api/outline.md
and docs/zh/triton_api of github.com/triton-lang/triton-ascend, commit a84b1eb):

- bytes are int8, bits int16 and int32: it loads and stores no unsigned type;
- `load`, `store` with masks, table look-ups among them (slow there: one address at a time), `reduce` with maximum,
  minimum or sum, `where` on 32 bits, `div_rn`, `log2`, `reshape`, bitcasts, shifts by a constant, `range`,
  `static_range`, products and bits of int32; 64 bits in address arithmetic alone;
- no atomics, gather, sort, scan, transposition, block pointers, inline assembly, libdevice, tuples of arguments;
- at most 65535 programs in one dimension; BLOCK sets how much on-chip memory a program takes.
"""
