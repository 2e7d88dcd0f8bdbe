"""Breaks of the front that users of scikit-learn know."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "rows that repeat themselves are learned from once",
        "estimator/columns.py",
        "number = np.maximum(np.rint(total), 1).astype(int)",
        "number = np.ones(len(total), int)",
        "estimator/test_estimator.py::test_rows_that_repeat_themselves_are_learned_from",
    ),
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
    Break(
        "more factors than usual whatever they gain",
        "estimator/starting.py",
        "scores[best] > scores[fewer] + _WORTH",
        "scores[best] > scores[fewer]",
        "estimator/test_estimator.py::test_the_number_of_factors_is_chosen_by_what_is_held_out",
    ),
    Break(
        "step sizes of scores move away from the target acceptance",
        "evaluation/rows.py",
        "found[3].mean(axis=0) - target",
        "target - found[3].mean(axis=0)",
        "estimator/test_estimator.py::test_step_sizes_reach_the_target",
    ),
]
