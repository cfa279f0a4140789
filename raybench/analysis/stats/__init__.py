"""From rounds to numbers with intervals: the estimator, efficiency, waterfall, phases."""
