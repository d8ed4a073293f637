"""Learn and predict with Spark, Ray or Dask: one model per partition, merged as a tree.

Each engine has `fit(dataset, estimator)` and `predict(dataset, classifier)`. The model of all rows
is the sum of the models of their partitions, bit for bit. Keys travel to the workers once; what
they send back are the bytes of safetensors files without keys, never pickled models.
"""
