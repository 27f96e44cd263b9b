#!/bin/sh
# Make sure that there is Khronos's validator of SPIR-V, spirv-val, on the PATH. Where there is none, install it (Debian
# and Ubuntu, as root); otherwise say what to install, and fail.
set -eu

install_with_apt() {
    wait_for_lock="-o DPkg::Lock::Timeout=300"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # two words on purpose
    apt-get $wait_for_lock update -qq &&
        apt-get $wait_for_lock install -qq -y --no-install-recommends spirv-tools >/dev/null
}

command -v spirv-val >/dev/null && exit
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "spirv-val was not found: installing spirv-tools."
    install_with_apt || echo "apt-get could not install it."
    command -v spirv-val >/dev/null && exit
fi
{
    echo "spirv-val was not found, so the shaders cannot be checked. Install SPIRV-Tools:"
    echo "  Debian, Ubuntu:  apt-get install spirv-tools"
    echo "  Fedora:          dnf install spirv-tools"
    echo "  Arch:            pacman -S spirv-tools"
    echo "  macOS:           brew install spirv-tools"
} >&2
exit 1
