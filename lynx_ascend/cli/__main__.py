"""`python -m lynx_ascend.cli`: the same as `lynx-ascend`."""

from lynx_ascend.cli.main import main

main()
