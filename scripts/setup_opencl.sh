#!/bin/sh
# Make sure that OpenCL has a device: look for one with the Python named by $1, which has pyopencl, and, where there is
# none, install PoCL, which computes on the processor (Debian and Ubuntu, as root) or say what to install. Never fails.
set -eu

python=$1

# Without a driver the loader raises; that is the same as finding nothing.
found() {
    "$python" - 2>/dev/null <<'END' || true
import pyopencl

for platform in pyopencl.get_platforms():
    for device in platform.get_devices():
        print("  ", device.name, platform.name, device.driver_version)
END
}

install_by_hand() {
    echo "No OpenCL device was found. Install:"
    case "$(uname -s)" in
        Darwin) echo "  nothing: OpenCL is part of macOS; this machine offers no OpenCL device" ;;
        *)
            echo "  your GPU's OpenCL driver, or PoCL, which computes on the processor:"
            echo "    Debian, Ubuntu:  apt-get install pocl-opencl-icd"
            echo "    Fedora, Arch:    dnf install pocl, pacman -S pocl"
            echo "    elsewhere:       pip install pocl-binary-distribution"
            ;;
    esac
    echo "Then \`optirs-web devices\` lists what is available."
}

list=$(found)
if [ -z "$list" ]; then
    sh "$(dirname "$0")/install_with_apt.sh" "An OpenCL device" pocl-opencl-icd && list=$(found)
fi
if [ -n "$list" ]; then
    echo "OpenCL devices:"
    echo "$list"
else
    install_by_hand
fi
