"""Where counts stand in a list: pair · CLASS_STRIDE + class."""

CLASS_STRIDE = 1 << 20  # of classes that a place has room for
