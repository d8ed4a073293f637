"""How values learn: stochastic gradient descent, counts, least squares."""
