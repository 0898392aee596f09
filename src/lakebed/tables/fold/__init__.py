"""Plan and carry out folds, which make one partition of many in a bucket."""
