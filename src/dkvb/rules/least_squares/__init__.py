"""Values by ridge regression on soft assignments."""
