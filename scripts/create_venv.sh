#!/bin/sh
# Create the virtual environment named by $1 with the first Python that is new enough.
set -eu

for python in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        exec "$python" -m venv "$1"
    fi
done

echo "OptiRS-Web needs Python 3.11 or newer; found: $(python3 --version 2>&1 || echo none)." >&2
echo "Install it and name it, for example: make setup PYTHON=python3.12" >&2
exit 1
