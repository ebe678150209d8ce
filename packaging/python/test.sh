#!/bin/bash
# Installs the wheel of dist/ into a clean environment and uses it as a new user would, in an empty folder. With Debian's
# PyTorch it does so again with that Python.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wheel=$(ls "$here"/../../dist/lightpath-*.whl)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
unset VLLM_NCCL_SO_PATH PYTHONPATH

glibc=$("$here/../../.tools/python/bin/auditwheel" show "$wheel" | sed -n 's/.*"manylinux_2_\([0-9]*\)_.*/\1/p' | head -1)
[ "${glibc:-99}" -le 28 ] || { echo "FAIL  the wheel needs glibc 2.${glibc:-?}, its name says 2.28"; exit 1; }
echo "ok    the wheel needs glibc 2.$glibc"

# try NAME PYTHON [VENV OPTION]: the package in an environment of a Python.
try() {
  "$2" -m venv ${3:-} "$work/$1"
  "$work/$1/bin/pip" install -q --no-index "$wheel"
  PATH=$work/$1/bin:$PATH python -m lightpath.doctor || { echo "FAIL  $1: python -m lightpath.doctor"; exit 1; }
  "$work/$1/bin/lightpath" bench allreduce -n 2 -e 1M >/dev/null
  echo "ok    $1: $("$work/$1/bin/lightpath" --version)"
}
try clean python3
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
  try torch /usr/bin/python3 --system-site-packages
  "$work/torch/bin/python" - <<'EOF'
import lightpath, os
assert os.path.dirname(lightpath.__file__).startswith(os.getcwd()), lightpath.__file__
assert lightpath.library_path().startswith(os.getcwd()), lightpath.library_path()
EOF
else
  echo "SKIP  the wheel with PyTorch: it is not installed (Debian: apt install python3-torch)"
fi
