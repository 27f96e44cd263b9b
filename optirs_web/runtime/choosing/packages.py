"""Messages for a device that needs a package which is missing, damaged or of another version."""

from __future__ import annotations

__all__ = ["REQUIREMENTS", "reason", "wrong_version"]

REQUIREMENTS = {
    "jax": "jax>=0.9",
    "numba": "numba>=0.61",
    "numpy": "numpy>=2",
    "platformdirs": "platformdirs>=4",
    "pyopencl": "pyopencl>=2025.1",
    "wgpu": "wgpu>=0.32,<0.33",
    "wgpudawn": "wgpudawn>=0.32,<0.33",
}
"""What pip is to be told, for packages of which not any version serves; as in pyproject.toml."""


def reason(package: str, error: ImportError) -> str:
    """Return why a device is not available whose backend could not import a package."""
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return f"the Python package {package} is not installed: {_install(package)}"
    message = " ".join(str(error).split())
    if not package:
        return f"a Python package that it needs cannot be imported: {message}"
    return f"the Python package {package} is damaged or the wrong version ({message}): {_install(package)}"


def wrong_version(package: str, version: str) -> str:
    """Return why a device is not available whose package is installed in that version; "" if the version is supported.

    Example:
        >>> from optirs_web.runtime.choosing.packages import wrong_version
        >>> wrong_version("wgpu", "0.32.1")
        ''
        >>> wrong_version("numpy", "1.26.4")
        "the Python package numpy is of version 1.26.4, which is not supported: pip install 'numpy>=2'"
    """
    bounds = REQUIREMENTS[package].removeprefix(package).split(",")
    lowest = next(bound.removeprefix(">=") for bound in bounds if bound.startswith(">="))
    above = next((bound.removeprefix("<") for bound in bounds if bound.startswith("<")), None)
    if _numbers(lowest) <= _numbers(version) and (above is None or _numbers(version) < _numbers(above)):
        return ""
    return f"the Python package {package} is of version {version}, which is not supported: {_install(package)}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")[:2] if number.isdecimal()]


def _install(package: str) -> str:
    wanted = REQUIREMENTS.get(package, package)
    return f"pip install {wanted}" if wanted == package else f"pip install '{wanted}'"
