"""Values by stochastic gradient descent, the rule of the paper."""
