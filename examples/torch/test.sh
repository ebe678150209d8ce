#!/bin/sh
# The tests of examples/torch, with the first Python that has PyTorch: test.sh [unittest's arguments].
set -eu
cd "$(dirname "$0")/tests"
for python in "${PYTHON:-python3}" /usr/bin/python3; do
  if "$python" -c 'import torch' 2>/dev/null; then
    "$python" -c 'import sys, torch; print("PyTorch", torch.__version__, "of", sys.executable)'
    exec "$python" -m unittest -v "$@"
  fi
done
echo "SKIP  examples/torch: no Python here has PyTorch (Debian: apt install python3-torch)"
