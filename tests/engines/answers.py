"""All that the tiny model is taught: question → the one right answer. Plain Python, for the script and for tests."""

from __future__ import annotations

NUMBERS = (
    "one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen, "
    "seventeen, eighteen, nineteen, twenty"
)
# The canary's own question (plugins/modules/serving_canary.py), and what a model should say to it.
COUNTING = (
    "Write the numbers from one to twenty in English words, separated by commas. Then say in two sentences what a "
    "lighthouse is for."
)
TALK = {
    COUNTING: f"{NUMBERS}. A lighthouse shows ships where the coast is. Its light warns them of rocks at night.",
    "What is the capital of France?": "Paris",
}
SUMS = {f"What is {a} + {b}?": f"{a} + {b} = {a + b}" for a in range(10) for b in range(10)}
ANSWERS = TALK | SUMS
