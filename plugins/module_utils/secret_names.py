# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How things are named whose values nobody else may see: variables, flags, keys, and what stands before a value in a log."""

from __future__ import annotations

import re

# Whose value is a secret even where it is a mere word.
ALWAYS = r"passw(?:or)?d|passphrase|secret|credentials?"
# Whose value looks like one where it is one. Engines count tokens (`…_PER_TOKEN`, `time-to-first-token`).
CODED = r"(?<!per[_-])(?<!first[_-])token|(?:api|private|access)[_-]?keys?|(?<![A-Za-z])(?<!per[_-])(?:pass|auth)"
NAME = re.compile(rf"(?i)(?:^|[_-])(?:{ALWAYS}|{CODED})$")
# Of a variable or flag that names a file with a secret in it.
FILE = re.compile(rf"(?i)(?:^|[_-])(?:{ALWAYS}|{CODED}|key)[_-]file$")
