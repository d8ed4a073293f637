"""Where counts stand in a list: pair · CLASS_STRIDE + class."""

CLASS_STRIDE = 1 << 20  # more than the number of classes
