"""What systemctl answers to a module."""

from __future__ import annotations

import pathlib
import typing as t


class Systemd:
    """What systemctl answers, and what it was asked to do. earlyoom may be missing."""

    states: t.ClassVar[dict[bool | None, str]] = {True: "enabled", False: "disabled", None: ""}

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {"earlyoom.service": True, "guard.path": False}
        self.active = {"earlyoom.service"}
        self.asked: list[str] = []

    def run(self, argv: t.Sequence[str]) -> tuple[int, str, str]:
        _systemctl, verb, *words = argv
        units = [word for word in words if not word.startswith("-")]
        if verb == "show" and "--value" in words:
            return 0, "0\n", ""
        if verb == "show":
            blocks = [
                f"UnitFileState={self.states[self.enabled.get(unit)]}\n"
                f"ActiveState={'active' if unit in self.active else 'inactive'}\n"
                for unit in units
            ]
            return 0, "\n".join(blocks), ""
        self.asked.append(f"{verb} {' '.join(units)}".strip())
        for unit in units:
            if verb in ("enable", "disable"):
                self.enabled[unit] = verb == "enable"
            if verb in ("start", "restart"):
                self.active.add(unit)
            if verb == "disable":
                self.active.discard(unit)
        return 0, "", ""


def there(tmp_path: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
