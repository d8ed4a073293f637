"""One module per topic; each has a `router`."""
