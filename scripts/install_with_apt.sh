#!/bin/sh
# Install Debian packages by name, where this is Debian or Ubuntu and the user is root; the exit status says whether it
# was done. $1 says what is missing, as the reader is told; the rest are the packages.
set -eu

missing=$1
shift
command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || exit 1
echo "$missing was not found: installing $*."
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=300 update -qq &&
    apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends "$@" >/dev/null || {
    echo "apt-get could not install it."
    exit 1
}
