"""Reference values for src/stats.rs: python stats.py > ../data/stats.json (SciPy 1.17, NumPy)."""

import json
import random

import numpy as np
from scipy import stats

rng = random.Random(0)

wilson = []
for k, n in [(0, 1), (1, 1), (0, 40), (40, 40), (1, 40), (20, 40), (123, 500), (499, 500)] + [
    (k, n) for n in (7, 200, 1319) for k in sorted({rng.randrange(n + 1) for _ in range(8)})
]:
    ci = stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    wilson.append([k, n, ci.low, ci.high])

mcnemar = []
for b, c in [(0, 1), (1, 0), (5, 5), (10, 2), (2, 10), (0, 20), (37, 61), (130, 80), (600, 500)] + [
    (rng.randrange(300), rng.randrange(300)) for _ in range(6)
]:
    mcnemar.append([b, c, stats.binomtest(min(b, c), b + c, 0.5).pvalue])

bootstrap = []
for n, up, down in [(40, 0.3, 0.1), (200, 0.2, 0.1), (500, 0.05, 0.08)]:
    values = [float((x < up) - (up <= x < up + down)) for x in (rng.random() for _ in range(n))]
    result = stats.bootstrap(
        (np.array(values),), np.mean, n_resamples=20000, method="percentile", rng=np.random.default_rng(0)
    )
    bootstrap.append([values, result.confidence_interval.low, result.confidence_interval.high])

quantile = []
for n in (1, 2, 5, 10):
    values = sorted(rng.random() for _ in range(n))
    for q in (0.0, 0.025, 0.5, 0.9, 1.0):
        quantile.append([values, q, float(np.quantile(values, q))])

student = []
for n in (2, 3, 4, 5, 10, 31, 32, 60, 200):
    values = [rng.random() for _ in range(n)]
    ci = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    student.append([values, float(ci.low), float(ci.high)])

print(json.dumps({"wilson": wilson, "mcnemar": mcnemar, "bootstrap": bootstrap, "quantile": quantile, "student": student}))
