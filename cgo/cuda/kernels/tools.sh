# Tools of the kernels' scripts, which source this file.

# Architectures with machine code in kernels.zip. A device runs the code of an earlier minor version of its major one.
architectures="80 90 100"
# The assembler that makes it. CUDA 12's drivers refuse code of later ones. Other versions make other code.
assembler=V12.8.93

# tool NAME VARIABLE prints the path of a program: the variable's value, or one in PATH or in a Python package.
tool() {
  local named=${!2:-} dir
  if [ -n "$named" ]; then echo "$named"; return; fi
  command -v "$1" && return
  for dir in $(python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages())' 2>/dev/null); do
    find "$dir/nvidia" -name "$1" -type f 2>/dev/null
  done | sort | tail -1
}

# machine_code FOLDER PTXAS makes FOLDER/kernels.sm_NN.cubin of the folder's modules, and FOLDER/made.txt: for each, the
# architecture, the assembler, and the digest of the text that it was made of.
machine_code() {
  local arch made
  made=$(mktemp -d)
  python3 "$here/join.py" "$1" "$made" $architectures || return 1
  for arch in $architectures; do
    "$2" -arch="sm_$arch" -o "$1/kernels.sm_$arch.cubin" "$made/kernels.sm_$arch.ptx" || return 1
    echo "sm_$arch $assembler $(sha256sum <"$made/kernels.sm_$arch.ptx" | cut -d ' ' -f 1)"
  done >"$1/made.txt"
  rm -rf "$made"
}
