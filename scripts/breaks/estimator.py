"""Breaks of the front that users of scikit-learn know."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "identical rows count once whatever their weights",
        "estimator/columns.py",
        "total = np.bincount(place.ravel(), weights[weights > 0])",
        "total = np.ones(len(first))",
        "estimator/test_estimator.py::test_rows_are_counted_whatever_the_bits_of_nan_and_zero",
    ),
    Break(
        "the encoder of factor analysis has the prior's scale",
        "estimator/starting.py",
        "= -0.5 * np.log(precision)",
        "= 0.0",
        "estimator/test_estimator.py::test_the_start_is_factor_analysis",
    ),
]
