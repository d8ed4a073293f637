"""Values by counting how often each class selects each key."""
