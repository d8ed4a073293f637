"""Where counts stand in a list: pair · COLUMNS + class."""

COLUMNS = 1 << 20  # of classes that a place has room for
