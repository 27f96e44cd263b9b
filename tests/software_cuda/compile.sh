#!/bin/sh
# Builds the CUDA text beside an image, PATH.cu, as PATH.so. The header is compiled once, which takes longest.
set -eu
here=$(dirname "$0")
header=$here/../wgsl/cuda_emulation.h
folder=$(dirname "$1")
flags="-std=c++17 -O1 -ffp-contract=off -fPIC -w"
precompiled=$folder/cuda_emulation.h.gch
if [ ! "$precompiled" -nt "$header" ]; then
    cp "$header" "$folder/cuda_emulation.h.$$"
    g++ $flags -x c++-header "$header" -o "$precompiled.$$"
    mv "$folder/cuda_emulation.h.$$" "$folder/cuda_emulation.h"
    mv "$precompiled.$$" "$precompiled"
fi
g++ $flags -shared -include "$folder/cuda_emulation.h" -x c++ "$1.cu" -o "$1.so.$$"
mv "$1.so.$$" "$1.so"
