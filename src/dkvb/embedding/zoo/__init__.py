"""Encoders of other libraries, a module a library; each `build` returns an `Encoder`."""
