# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names whose values are secret: of variables, flags and keys, and before a value in a log."""

from __future__ import annotations

import re

# The value is a secret even if it is an ordinary word.
ALWAYS = r"passw(?:or)?d|passphrase|secret|credentials?"
# The value is a secret if it looks like one. Engines count tokens (`…_PER_TOKEN`, `time-to-first-token`).
CODED = r"(?<!per[_-])(?<!first[_-])token|(?:api|private|access)[_-]?keys?|(?<![A-Za-z])(?<!per[_-])(?:pass|auth)"
NAME = re.compile(rf"(?i)(?:^|[_-])(?:{ALWAYS}|{CODED})$")
# A variable or flag that names a file with a secret in it.
FILE = re.compile(rf"(?i)(?:^|[_-])(?:{ALWAYS}|{CODED}|key)[_-]file$")
