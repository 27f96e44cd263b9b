#!/bin/sh
# Put what runs DXC into the folder named by $1: wine and MinGW's C compiler, unpacked from Debian 12's packages without
# being installed, and dxc.exe, compiled from tests/adapters/dxc.c. About 170 MB are downloaded. The folder gets a script,
# `run`, that runs dxc.exe with its arguments.
set -eu

folder=$(realpath -m "$1")
here=$(realpath "$(dirname "$0")/..")
root=$folder/root
packages="libwine wine64 libz-mingw-w64 gcc-mingw-w64-x86-64-win32 gcc-mingw-w64-x86-64-win32-runtime
    binutils-mingw-w64-x86-64 mingw-w64-x86-64-dev mingw-w64-common"

if ! command -v apt-get >/dev/null || [ "$(uname -m)" != x86_64 ]; then
    echo "DXC runs under wine here, from the packages of Debian 12 for x86-64; this machine has none." >&2
    echo "Install wine and MinGW, compile tests/adapters/dxc.c, and write $folder/run to match scripts/setup_dx12.sh." >&2
    exit 1
fi

mkdir -p "$root"
# shellcheck disable=SC2086 # words on purpose
(cd "$folder" && apt-get download -qq $packages)
for package in "$folder"/*.deb; do
    dpkg -x "$package" "$root"
    rm "$package"
done

mingw=$root/usr/x86_64-w64-mingw32
"$root/usr/bin/x86_64-w64-mingw32-gcc-win32" -B"$root/usr/bin/x86_64-w64-mingw32-" -B"$mingw/lib" -L"$mingw/lib" \
    -idirafter "$root/usr/share/mingw-w64/include" -static -O1 -Wall -o "$folder/dxc.exe" "$here/tests/adapters/dxc.c"

wine=$root/usr/lib/wine
sed -i "s#/usr/lib/wine/#$wine/#" "$wine/wineserver"
cat > "$folder/run" <<END
#!/bin/sh
export LD_LIBRARY_PATH='$root/usr/lib/x86_64-linux-gnu' WINESERVER='$wine/wineserver' WINEPREFIX='$folder/prefix'
export WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml,winemenubuilder.exe='
exec '$wine/wine64' '$folder/dxc.exe' "\$@"
END
chmod +x "$folder/run"

# zlib1.dll has to lie beside wine's own libraries when the first run makes wine's folders, and then among those.
cp "$mingw/lib/zlib1.dll" "$root/usr/lib/x86_64-linux-gnu/wine/x86_64-windows/"
"$folder/run" >/dev/null 2>&1 || true
cp "$mingw/lib/zlib1.dll" "$folder/prefix/drive_c/windows/system32/"
