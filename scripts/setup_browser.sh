#!/bin/sh
# Make sure that there is a browser with WebGPU for the tests: the Chromium that the variable CHROMIUM names or that is
# on the PATH. Where there is none, install it (Debian, as root) or say what to install. Never fails: without a browser
# only the tests that need one are left out.
set -eu

found() {
    for browser in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        [ -n "$browser" ] && command -v "$browser" && return
    done
    true
}

install_with_apt() {
    wait_for_lock="-o DPkg::Lock::Timeout=300"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # two words on purpose
    apt-get $wait_for_lock update -qq &&
        apt-get $wait_for_lock install -qq -y --no-install-recommends chromium >/dev/null
}

browser=$(found)
if [ -z "$browser" ] && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "No Chromium was found: installing it."
    install_with_apt || echo "apt-get could not install it."
    browser=$(found)
fi
if [ -n "$browser" ]; then
    echo "Browser for the tests: $browser"
else
    echo "No Chromium was found, so the tests that need a browser will be left out."
    echo "Install Chromium or Chrome, 137 or newer; where it is not on the PATH, name it: CHROMIUM=/path/to/chromium"
fi
