"""What pyproject.toml cannot say: the wheel lacks the demo, which an editable install has."""

from __future__ import annotations

from setuptools import setup
from setuptools.command.build_py import build_py

DEMO = "optirs_web.demo_site"  # in the wheel that demo_site/pyproject.toml makes


class BuildLibrary(build_py):
    """Copies the library's modules into the wheel; an editable install leaves them where they are."""

    def finalize_options(self) -> None:
        """Take the packages of pyproject.toml but one."""
        super().finalize_options()
        self.packages = [one for one in self.packages if one != DEMO]


setup(cmdclass={"build_py": BuildLibrary})
