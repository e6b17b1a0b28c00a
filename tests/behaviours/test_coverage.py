"""Every observed behaviour of the topics A to F is a row of a test here, or listed with the reason why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
NUMBERS = json.loads((HERE.parent / "tables" / "behaviours.json").read_text())

NOT_APPLICABLE = {
    "tf.function, graphs and their control flow": "A50 A51 B67 B69 B70 B71 B73 C13 C14 C119 C124 C132 C133 C142 D73 D116 "
                                                  "F60 F106",
    "gradient tapes; the gradients by hand are in tests/test_determinism.py": "B86 B87 C82 C83 C85 C117 F99 F101 F102",
    "ragged and sparse tensors, bfloat16, Keras, tf.Module, tf.random, checks of TensorFlow's own":
        "B62 B76 C42 C70 C71 D104 F98",
    "internals of TensorFlow: private methods, class hierarchies, text of the default repr": "A76 C120 C130 E6 E7 E24",
    "graph mode": "F78",
    "copies that differ; here they cannot": "F42 F43",
    "no array knows its device": "D137",
    "PerReplica and Mirrored are public here": "D148",
}
ELSEWHERE = {
    "tests/test_contexts.py": "A33 A34 A47 F87",
    "tests/test_checks.py": "C39",
    "tests/test_api.py": "E93 E95",
    "rows of several numbers": "C47 C48 C49 C50 C102 C104 C106 C108",
    "tests/test_data.py": "D140",
    "tests/test_deprecated.py": "A56 A58 A59 A60 A61 A62 A63 A64 D150 D151",
}


def rows() -> set[str]:
    text = "".join(path.read_text() for path in HERE.glob("test_*.py") if path.name != "test_coverage.py")
    return set(re.findall(r'Row\("([A-F]\d+)', text))


def listed() -> set[str]:
    return set(" ".join([*NOT_APPLICABLE.values(), *ELSEWHERE.values()]).split())


def observed() -> set[str]:
    return {f"{topic}{number}" for topic in "ABCDEF" for number in NUMBERS[topic]}


def test_every_behaviour_is_a_row_or_listed_with_a_reason() -> None:
    assert sorted(observed() - rows() - listed()) == []


def test_nothing_is_listed_that_has_a_row_or_was_not_observed() -> None:
    assert sorted(listed() & rows()) == []
    assert sorted(listed() - observed()) == []
