"""How far the emulator agrees with an H200, as a table; runs all programs.

python -m tests.emulator.agreement.summary
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from tests.emulator.agreement import answers, catalogue, compare, emulated


@dataclass(frozen=True)
class Truth:
    """What is stored.

    Attributes:
        forms: Of the target.
        answered: Forms of which every mnemonic has the device's answer (an error on purpose counts, a refusal not).
        mnemonics: All that have it.
    """

    forms: int
    answered: int
    mnemonics: int


def truth() -> Truth:
    """Counted from the stored document alone."""
    document = answers.load("programs") or {"answers": {}}
    entries = document["answers"]
    good = {
        form: [not entry.startswith(("refused", "unstable")) for entry in found.values()]
        for form, found in entries.items()
    }
    names = [form.name for form in catalogue.forms()]
    answered = sum(all(good.get(name, [False])) for name in names)
    return Truth(len(names), answered, sum(sum(each) for each in good.values()))


def mismatches() -> Counter[str]:
    """Parts by the kind of their outcome, over all programs that the tests run."""
    document = answers.load("programs") or {"answers": {}}
    counted: Counter[str] = Counter()
    for program in catalogue.essential():
        counted.update(each.kind for each in compare.outcomes(program, emulated.run(program), document))
    return counted


def main() -> None:
    """Print the table."""
    found, kinds = truth(), mismatches()
    share = found.answered / found.forms
    lines = (
        f"forms with hardware truth | {found.answered} of {found.forms} ({share:.1%})",
        f"mnemonics with hardware truth | {found.mnemonics}",
        "compared: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
    )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
