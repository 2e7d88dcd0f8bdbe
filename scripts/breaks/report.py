"""Breaks of reports."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "latents are coloured by the labels of other rows",
        "report/labelling.py",
        "labels.codes[held_out.numbers(chosen)]",
        "labels.codes[chosen]",
        "report/test_labelling.py",
    ),
    Break(
        "a model decides the bars that it is judged by",
        "report/columns.py",
        "compared(column, bars_of(column, values), values,",
        "compared(column, bars_of(column, samples[2][:, i]), values,",
        "report/test_columns.py",
    ),
    Break(
        "correlations take what is missing for the mean",
        "report/columns.py",
        "here = is_known.astype(float)",
        "here = np.ones_like(ranks)",
        "report/test_columns.py",
    ),
    Break(
        "the card takes evaluations of other weights",
        "report/card.py",
        "if each.update in (opened.update, None) and",
        "if",
        "report/test_card.py::test_the_card_says_what_the_run_knows",
    ),
]
