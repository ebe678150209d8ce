# Runs C tests, two at a time. A script sets $out, a folder for its files, and sources this file in the root of the
# repository:
#
#   . cgo/testing.sh
#   compile PROGRAM [FLAG...] FILE...              makes a program, $out/PROGRAM
#   library FILE SONAME [FLAG...] FILE...          makes a shared library, $out/FILE
#   compiled                                       waits for all that is being made
#   check NAME [VARIABLE=VALUE...] COMMAND [ARGUMENT...]
#   finish                                         waits for all, exits 1 if any test has failed
#
# The script's arguments, if any, name the tests to run. TEST_JOBS is how many run at a time. TEST_LIMIT is the time
# limit of a test in seconds.
set -u
jobs=${TEST_JOBS:-2}
wanted=$*
root=$PWD
lib=$root/lib/libnccl.so.2
cflags="-std=gnu11 -O2 -g -Wall -Wextra -Werror -Icgo/front -pthread"
cflags="$cflags -Wno-deprecated-declarations -Wno-missing-field-initializers"
# How many calls there are for one that a sample of an oracle makes.
sample=$([ -n "${LIGHTPATH_TEST_LONG:-}" ] && echo 1 || echo 3)
mkdir -p "$out"
rm -f "$out/failed" "$out/compile-failed"
began=$(date +%s%3N)

# room waits until another job may start.
room() { while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done; }

# compile makes a program beside other compilers; compiled waits for them. $link links it with libnccl.so.2.
link="-Llib -lnccl -Wl,-rpath,$root/lib -lm -ldl"
compile() {
  local program=$1
  shift
  room
  { ${CC:-cc} $cflags -o "$out/$program" "$@" || touch "$out/compile-failed"; } &
}
compiled() {
  wait
  [ ! -e "$out/compile-failed" ] || exit 1
}

library() {
  local file=$1 name=$2
  shift 2
  mkdir -p "$out/$(dirname "$file")"
  compile "$file" -fPIC -fvisibility=hidden -shared -Wl,-soname,"$name" "$@"
}

want() { [ -z "$wanted" ] || case " $wanted " in *" $1 "*) ;; *) return 1 ;; esac; }

# run_test NAME COMMAND...: one test, with a time limit. Its output is shown only if it fails.
run_test() {
  local name=$1 start rc
  shift
  start=$(date +%s%3N)
  timeout "${TEST_LIMIT:-300}" env "$@" >"$out/$name.log" 2>&1
  rc=$?
  if [ $rc -eq 0 ]; then
    echo "ok    $name ($(($(date +%s%3N) - start)) ms)"
  else
    { echo "FAIL  $name (exit $rc)"; tail -60 "$out/$name.log" | sed 's/^/      /'; }
    touch "$out/failed"
  fi
}

check() {
  want "$1" || return 0
  room
  run_test "$@" &
}

finish() {
  wait
  echo "$(basename "$out"): $(($(date +%s%3N) - began)) ms"
  [ ! -e "$out/failed" ]
  exit
}
