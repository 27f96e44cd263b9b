#!/bin/sh
# Make sure that WebGPU has an adapter: look for one with the Python named by $1 and, where there is none, install the
# software Vulkan driver (Debian and Ubuntu, as root) or say what to install. An adapter over OpenGL alone does not
# count, since it lacks much of what the others have. Never fails: the `cpu` device needs no adapter.
set -eu

python=$1

adapters() {
    "$python" - <<'END'
import wgpu

for adapter in wgpu.gpu.enumerate_adapters_sync():
    if adapter.info["backend_type"] != "OpenGL":
        print("  ", adapter.summary)
END
}

# A missing Vulkan loader makes the look-up raise; that is the same as finding nothing.
found() {
    adapters 2>/dev/null || true
}

report() {
    echo "WebGPU adapters:"
    echo "$1"
}

install_by_hand() {
    echo "No WebGPU adapter was found, so only the cpu device will work. For the others install:"
    case "$(uname -s)" in
        Darwin) echo "  nothing: Metal is part of macOS 10.13 and newer; this machine offers no Metal device" ;;
        *)
            echo "  your GPU's Vulkan driver, or the software driver (llvmpipe):"
            echo "    Debian, Ubuntu:  apt-get install libvulkan1 mesa-vulkan-drivers"
            echo "    Fedora:          dnf install vulkan-loader mesa-vulkan-drivers"
            echo "    Arch:            pacman -S vulkan-icd-loader vulkan-swrast"
            ;;
    esac
    echo "Then \`optirs-web devices\` lists what is available."
}

list=$(found)
if [ -z "$list" ]; then
    sh "$(dirname "$0")/install_with_apt.sh" "A WebGPU adapter" libvulkan1 mesa-vulkan-drivers && list=$(found)
fi
if [ -n "$list" ]; then report "$list"; else install_by_hand; fi
