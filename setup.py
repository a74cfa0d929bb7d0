"""The editable install: the folders of the packages on the path, where type checkers see them too.

For three roots setuptools installs an import hook. Type checkers do not run hooks: to them every name of millpond was
`Any` in a project with `pip install -e`. Everything else is in pyproject.toml.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
ROOTS = [ROOT / name for name in ("worker", "operator", "spark")]
PATHS = "__editable__.millpond.pth"


class EditableWheel(editable_wheel):
    """Put a list of folders into the wheel in place of the import hook."""

    def run(self) -> None:
        """Build the wheel, and write it again."""
        super().run()
        for wheel in Path(self.dist_dir).glob("*.whl"):
            with zipfile.ZipFile(wheel) as old:
                files = {name: old.read(name) for name in old.namelist() if not name.startswith("__editable__")}
            [record] = [name for name in files if name.endswith(".dist-info/RECORD")]
            files[PATHS] = "".join(f"{each}\n" for each in ROOTS if each.is_dir()).encode()
            del files[record]
            files[record] = _record(files, record)
            with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
                for name, content in files.items():
                    new.writestr(name, content)


def _record(files: dict[str, bytes], record: str) -> bytes:
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')},{len(content)}"
        for name, content in files.items()
    ]
    return "\n".join([*rows, f"{record},,", ""]).encode()


setup(cmdclass={"editable_wheel": EditableWheel})
