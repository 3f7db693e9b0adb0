"""The 97.5 % quantile of Student's t at any number of degrees of freedom, whole or not."""

from __future__ import annotations

import math

Z95 = 1.959963984540054
"""The same quantile of the normal distribution."""
TAILS = 0.05
EXPANDED_FROM = 30.0
"""From here on the expansion around the normal quantile is accurate to 4e-8; the series would take more and more terms."""


def t95(df: float) -> float:
    """The t that a variable with so many degrees of freedom exceeds in size with probability 5 %, to 1e-7 or better.

    With a = df/2 and x = df/(df + t²) the probability is the incomplete beta function I_x(a, 1/2); its logarithm is convex in
    log x, so that Newton's steps from the normal quantile, which is too small, come down to the root and never pass it.
    """
    if df >= EXPANDED_FROM:
        return _expanded(df)
    a = df / 2
    log_scale = math.lgamma(a + 0.5) - math.lgamma(a + 1) - math.lgamma(0.5)  # of 1 / (a·B(a, 1/2))
    log_x = -math.log1p(Z95**2 / df)
    step = math.inf
    while abs(step) > 1e-12 * abs(log_x):
        x, rest = math.exp(log_x), -math.expm1(log_x)
        series = _series(a, x)
        log_tails = log_scale + a * log_x + math.log(rest) / 2 + math.log(series)
        step = (log_tails - math.log(TAILS)) * rest * series / a
        log_x -= step
    return math.sqrt(df * math.expm1(-log_x)) if log_x > -700 else math.inf  # above 1e150 nothing depends on it


def _series(a: float, x: float) -> float:
    """What is left of I_x(a, 1/2) without x^a·√(1-x)/(a·B(a, 1/2)): 1 + x·(a+½)/(a+1) + x²·(a+½)(a+1½)/((a+1)(a+2)) + …"""
    total = term = 1.0
    index = 0
    while term > 1e-17 * total:
        term *= x * (a + 0.5 + index) / (a + 1 + index)
        total += term
        index += 1
    return total


def _expanded(df: float) -> float:
    """Cornish and Fisher's expansion in 1/df (Abramowitz and Stegun, 26.7.5)."""
    z = Z95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / df + second / df**2 + third / df**3 + fourth / df**4
