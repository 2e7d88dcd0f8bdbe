"""Alignments as codes with gaps missing, which sequences are relatives, and a mutational scan."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aisle.errors import InputError

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
_CODES = {letter: code for code, letter in enumerate(LETTERS)}


class Alignment(NamedTuple):
    """An alignment in the columns of its first sequence.

    Attributes:
        codes: of the letters, sequences by columns; NaN for a gap or an unknown letter.
        positions: of the columns in the numbering of the first sequence.
    """

    codes: np.ndarray
    positions: np.ndarray


def read_alignment(path: Path) -> Alignment:
    """Read A2M or aligned FASTA; columns are those in which the first sequence is in upper case.

    The first header may say where the first sequence begins, as in NAME/24-286; else it is 1.
    """
    names, sequences = [], []
    for line in path.read_text().splitlines():
        if line.startswith(">"):
            names.append(line[1:])
            sequences.append("")
        elif sequences:
            sequences[-1] += line.strip()
    if not sequences:
        raise InputError(f"{path} has no sequence: give A2M or FASTA, with headers after '>'")
    first = sequences[0]
    for name, sequence in zip(names, sequences, strict=True):
        if len(sequence) != len(first):
            raise InputError(
                f"{path}: {name} has {len(sequence)} columns but the first sequence {len(first)}: "
                "give an alignment"
            )
    begin = re.search(r"/(\d+)-\d+$", names[0])
    is_letter = np.array([letter.isalpha() for letter in first])
    numbers = np.cumsum(is_letter) - 1 + (int(begin[1]) if begin else 1)
    columns = [i for i, letter in enumerate(first) if letter.isupper()]
    table = np.full(128, np.nan, np.float32)
    for letter, code in _CODES.items():
        table[ord(letter)] = code
    rows = [np.frombuffer(sequence.encode("ascii"), np.uint8)[columns] for sequence in sequences]
    return Alignment(table[np.stack(rows)], numbers[columns])


class Relatives(NamedTuple):
    """Which sequences are close to each other.

    Attributes:
        weights: of each sequence, 1 / the number of those that it agrees with. It agrees with
            itself, so that the sum counts sequences that are far apart.
        clusters: the first sequence of the cluster that each one is in.
    """

    weights: np.ndarray
    clusters: np.ndarray


def relatives(codes: np.ndarray, identity: float = 0.8) -> Relatives:
    """Find the sequences that agree with each one in this share of its letters.

    A sequence that is in no cluster begins one, with those that agree with it, or it with them,
    and are in none: a fragment is in the cluster of what it is a part of.
    """
    width = len(LETTERS)
    hot = (codes[:, :, None] == np.arange(width)).astype(np.float32).reshape(len(codes), -1)
    lengths = np.maximum(hot.sum(axis=1), 1)
    agrees = np.empty((len(codes), len(codes)), bool)
    for start in range(0, len(codes), 1000):
        block = slice(start, start + 1000)
        agrees[block] = hot[block] @ hot.T >= identity * lengths[block, None]
    # A sequence of gaps agrees with nothing.
    np.fill_diagonal(agrees, True)
    clusters = np.full(len(codes), -1)
    for first in range(len(codes)):
        if clusters[first] < 0:
            clusters[(agrees[first] | agrees[:, first]) & (clusters < 0)] = first
    return Relatives(1 / agrees.sum(axis=1), clusters)


def split_clusters(clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows to train on, and the first of each cluster to choose by and to report.

    A tenth of the clusters each is held out, so held-out sequences have few relatives among those
    to train on, and none among each other. The first sequence, whose mutants are scored, is trained
    on.
    """
    others = np.unique(clusters[clusters != clusters[0]])
    # Not `default_rng`: NumPy promises that only this older stream will never change.
    others = np.random.RandomState(0).permutation(others)
    number = max(1, len(others) // 10)
    valid, test = np.sort(others[:number]), np.sort(others[number : 2 * number])
    is_held_out = np.isin(clusters, np.concatenate([valid, test]))
    return np.flatnonzero(~is_held_out), valid, test


def drawn(weights: np.ndarray, number: int) -> np.ndarray:
    """Return rows as often as their weights say, evenly through all of them.

    Batches of them vary less than batches of all rows whose losses are weighted.
    """
    ends = np.cumsum(weights)
    return np.searchsorted(ends, (np.arange(number) + 0.5) * ends[-1] / number)


class Scan(NamedTuple):
    """Measured effects of single mutants.

    Attributes:
        columns: places in the alignment.
        codes: the new letters there.
        effects: what was measured.
        published: what others have predicted, by column of the file.
    """

    columns: np.ndarray
    codes: np.ndarray
    effects: np.ndarray
    published: dict[str, np.ndarray]


def read_scan(path: Path, alignment: Alignment, column: str, published: Sequence[str] = ()) -> Scan:
    """Read the mutants, written as in H24C, that are in the alignment and have all values."""
    places = {int(position): i for i, position in enumerate(alignment.positions)}
    found = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            match = re.fullmatch(r"([A-Z])(\d+)([A-Z])", row["mutant"])
            values = [row[name] for name in (column, *published)]
            if match is None or int(match[2]) not in places or not all(values):
                continue
            place = places[int(match[2])]
            if alignment.codes[0, place] != _CODES[match[1]]:
                raise InputError(f"{path}: {row['mutant']} does not begin with the letter there")
            found.append((place, _CODES[match[3]], *map(float, values)))
    if not found:
        raise InputError(f"{path} has no mutant of the alignment with {column}: name another one")
    columns, codes, effects, *others = (np.array(values) for values in zip(*found, strict=True))
    return Scan(columns, codes, effects, dict(zip(published, others, strict=True)))
