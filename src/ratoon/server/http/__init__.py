"""What is the same for every endpoint: the application, keys, limits, errors, the operator's endpoints."""
