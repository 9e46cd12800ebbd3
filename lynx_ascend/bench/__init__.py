"""`lynx-ascend bench`: how fast the parts are on this machine, each beside what it should be measured against."""
