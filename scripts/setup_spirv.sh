#!/bin/sh
# Make sure that there is Khronos's validator of SPIR-V, spirv-val, on the PATH. Where there is none, install it (Debian
# and Ubuntu, as root); otherwise say what to install, and fail.
set -eu

command -v spirv-val >/dev/null && exit
sh "$(dirname "$0")/install_with_apt.sh" spirv-val spirv-tools && command -v spirv-val >/dev/null && exit
{
    echo "spirv-val was not found, so the shaders cannot be checked. Install SPIRV-Tools:"
    echo "  Debian, Ubuntu:  apt-get install spirv-tools"
    echo "  Fedora:          dnf install spirv-tools"
    echo "  Arch:            pacman -S spirv-tools"
    echo "  macOS:           brew install spirv-tools"
} >&2
exit 1
