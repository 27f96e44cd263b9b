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

browser=$(found)
if [ -z "$browser" ]; then
    sh "$(dirname "$0")/install_with_apt.sh" Chromium chromium && browser=$(found)
fi
if [ -n "$browser" ]; then
    echo "Browser for the tests: $browser"
else
    echo "No Chromium was found, so tests that need a browser are skipped."
    echo "Install Chromium or Chrome, 137 or newer; if it is not on the PATH, set CHROMIUM=/path/to/chromium"
fi
