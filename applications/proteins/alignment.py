"""Alignments as codes with gaps missing, the weights of their sequences, and a mutational scan."""

import csv
import re
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


def sequence_weights(codes: np.ndarray, identity: float = 0.8) -> np.ndarray:
    """Return 1 / the number of sequences that agree with each one in this share of its letters.

    A sequence agrees with itself, so that the sum counts sequences that are far apart.
    """
    width = len(LETTERS)
    hot = (codes[:, :, None] == np.arange(width)).astype(np.float32).reshape(len(codes), -1)
    lengths = np.maximum(hot.sum(axis=1), 1)
    neighbours = np.empty(len(codes))
    for start in range(0, len(codes), 1000):
        block = slice(start, start + 1000)
        neighbours[block] = (hot[block] @ hot.T >= identity * lengths[block, None]).sum(axis=1)
    return 1 / np.maximum(neighbours, 1)


class Scan(NamedTuple):
    """Measured effects of single mutants: places in the alignment, new codes, and values."""

    columns: np.ndarray
    codes: np.ndarray
    effects: np.ndarray


def read_scan(path: Path, alignment: Alignment, column: str) -> Scan:
    """Read the measured mutants, written as in H24C, whose place is in the alignment."""
    places = {int(position): i for i, position in enumerate(alignment.positions)}
    found = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            match = re.fullmatch(r"([A-Z])(\d+)([A-Z])", row["mutant"])
            if match is None or int(match[2]) not in places or not row[column]:
                continue
            place = places[int(match[2])]
            if alignment.codes[0, place] != _CODES[match[1]]:
                raise InputError(f"{path}: {row['mutant']} does not begin with the letter there")
            found.append((place, _CODES[match[3]], float(row[column])))
    columns, codes, effects = zip(*found, strict=True)
    return Scan(np.array(columns), np.array(codes), np.array(effects))
