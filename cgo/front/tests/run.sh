#!/bin/sh
# Builds and runs the C tests against lib/: run.sh [TEST...]. Exits 1 if any fails.
set -u
cd "$(dirname "$0")/../../.." || exit 1
root=$PWD
out=build/test-c
mkdir -p "$out"
failed=0
wanted=${*:-}

# check NAME COMMAND...: one test, with a bound, its output shown only when it fails.
check() {
  name=$1; shift
  case " ${wanted:-$name} " in *" $name "*) ;; *) return ;; esac
  if timeout 300 "$@" >"$out/$name.log" 2>&1; then
    echo "ok    $name"
  else
    echo "FAIL  $name (exit $?)"
    sed 's/^/      /' "$out/$name.log"
    failed=1
  fi
}

cflags="-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-deprecated-declarations -Icgo/front -pthread"
for test in library fork churn group args failure nocore core redop options conf memory fallback kin nonblocking survivors properties ends onesided quick stays; do
  ${CC:-cc} $cflags -o "$out/$test" "cgo/front/tests/$test.c" -Llib -lnccl "-Wl,-rpath,$root/lib" || exit 1
done
${CC:-cc} $cflags -D_GNU_SOURCE -o "$out/apart" cgo/front/tests/apart.c cgo/front/apart.c -Llib -lnccl "-Wl,-rpath,$root/lib" -ldl || exit 1
${CC:-cc} $cflags -o "$out/laying" cgo/front/tests/laying.c cgo/front/laying.c -Llib -lnccl "-Wl,-rpath,$root/lib" || exit 1
# Not linked: it opens the library itself.
${CC:-cc} $cflags -o "$out/load" cgo/front/tests/load.c -ldl || exit 1

${CC:-cc} $cflags -fPIC -shared -o "$out/liar.so" cgo/front/tests/liar.c -Llib -lnccl || exit 1

lib=$root/lib/libnccl.so.2
check load-now "$out/load" "$lib" now
check load-lazy "$out/load" "$lib" lazy
check load-relative "$out/load" lib/libnccl.so.2 lazy
mkdir -p "$out/elsewhere" && ln -sf "$lib" "$out/elsewhere/libnccl.so.2"
check load-symlink "$out/load" "$out/elsewhere/libnccl.so.2" lazy
check load-bind-now env LD_BIND_NOW=1 "$out/load" "$lib" lazy
check library "$out/library"
check fork "$out/fork"
check group "$out/group"
check ends "$out/ends"
check onesided "$out/onesided"
check onesided-tcp env LIGHTPATH_TRANSPORT=tcp "$out/onesided"
check args "$out/args"
check churn "$out/churn"
check kin "$out/kin"
check nonblocking "$out/nonblocking"
check never-comes env LIGHTPATH_TIMEOUT=1s "$out/nonblocking" never
check survivors "$out/survivors"
check survivors-tcp env LIGHTPATH_TRANSPORT=tcp "$out/survivors"
for ranks in 2 3 5; do check "quick-$ranks" env LIGHTPATH_TRANSPORT=shm "$out/quick" $ranks; done
${CC:-cc} $cflags -fPIC -shared -o "$out/counting.so" cgo/front/tests/counting.c -ldl || exit 1
for ranks in 2 3; do
  check "stays-$ranks" env LIGHTPATH_TRANSPORT=shm LIGHTPATH_CORE="$root/$out/counting.so" COUNTING_CORE="$root/lib/liblightpath.so" \
    "$out/stays" $ranks
done
check laying "$out/laying"
check apart env LIGHTPATH_TRANSPORT=shm "$out/apart"
check redop "$out/redop"
check properties "$out/properties"
check memory "$out/memory"
check conf "$out/conf" "$out/nccl.conf"
check options env LIGHTPATH_PLANES=2 "$out/options"
# Another library behind ours. It is where an installed one would be, under its own name.
mkdir -p "$out/other" "$out/cuda" && rm -f "$out"/other/log*
fake="-fPIC -shared -Icgo/front"
${CC:-cc} $cflags $fake -Wl,-soname,libnccl.so.2 -o "$out/other/libnccl.so.2" cgo/front/tests/fake.c || exit 1
${CC:-cc} $cflags $fake -Wl,-soname,libcuda.so.1 -o "$out/cuda/libcuda.so.1" cgo/front/tests/fakecuda.c || exit 1
mkdir -p "$out/second" && cp lib/libnccl.so.2 lib/liblightpath.so "$out/second/"
fallback() { # NAME MODE LIBRARY [VARIABLE=VALUE...]
  name=fallback-$1; mode=$2; other=$3; shift 3
  check "$name" env LD_LIBRARY_PATH="$root/$out/cuda" LIGHTPATH_NCCL_FALLBACK_LIB="$other" \
    FAKE_LOG="$out/other/log-$name" "$@" "$out/fallback" "$mode"
}
other=$root/$out/other/libnccl.so.2
fallback both both "$other"
fallback none none "$other" LIGHTPATH_FALLBACK=none
fallback all all "$other" LIGHTPATH_FALLBACK=all
fallback no-device no-device "$other" FAKE_NO_DEVICE=1
fallback self "is Lightpath itself" "$lib"
fallback copy "second/libnccl.so.2 is Lightpath itself" "$root/$out/second/libnccl.so.2"
fallback missing "cannot load" /nonexistent/libnccl.so.2
fallback policy "is none of auto, interpose, all, none" "$other" LIGHTPATH_FALLBACK=sometimes
check failure "$out/failure"
check core "$out/core" "$root/lib/liblightpath.so"
check no-core env LIGHTPATH_CORE=/nonexistent/core.so "$out/nocore" /nonexistent/core.so
# The C library is a library, but not a core.
check wrong-core env LIGHTPATH_CORE=libc.so.6 "$out/nocore" "does not fit"

# The same source, said to be of another version.
${CC:-cc} -std=gnu11 -O1 -D_GNU_SOURCE '-DLP_VERSION="9.9.9"' -fPIC -pthread -shared -Wl,-soname,libnccl.so.2 \
  -o "$out/elsewhere/newer.so" -Icgo/front cgo/front/*.c cgo/front/combine/*.c -ldl || exit 1
check version-skew env LD_PRELOAD="$root/$out/elsewhere/newer.so" LIGHTPATH_CORE="$root/lib/liblightpath.so" \
  "$out/nocore" "this libnccl.so.2 (Lightpath 9.9.9)"

# The header, as strict programs of either language include it.
header() {
  printf '#include <nccl.h>\nint main(void) { ncclConfig_t c = NCCL_CONFIG_INITIALIZER; return sizeof c != 120; }\n' |
    "$@" -pedantic -Wall -Wextra -Werror -Icgo/front - -o "$out/header" && "$out/header"
}
for std in c99 c11; do header ${CC:-cc} -std=$std -x c || { echo "FAIL  header $std"; failed=1; }; done
header ${CXX:-c++} -std=c++11 -x c++ || { echo "FAIL  header c++11"; failed=1; }

check preload-bash env LD_PRELOAD="$lib" bash -c '
  grep -q libnccl /proc/$$/maps && [ "$(ls /proc/$$/task | wc -l)" = 1 ] && [ "$(echo a | tr a b)" = b ]'
check preload-python env LD_PRELOAD="$lib" "${PYTHON:-python3}" cgo/front/tests/preload.py

check multiprocessing "${PYTHON:-python3}" cgo/front/tests/multiprocessing_nccl.py "$lib"

check worker cgo/front/tests/worker.sh "$root/bin/lightpath-rank" "$root/$out/liar.so" "$root/$out/worker"

exit $failed
