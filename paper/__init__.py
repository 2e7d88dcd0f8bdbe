"""The studies behind Ding & Freedman (2020), run again: `python -m paper --help`.

`figure1`, `tables`, `kernels` and `gradients` hold one study each. Only `paper.core` calls the
parts of the library that train, evaluate and anneal.
"""
