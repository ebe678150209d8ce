#!/bin/bash
# Builds and runs the C tests of libnccl.so.2 against lib/: run.sh [TEST...]. Exits 1 if any fails.
cd "$(dirname "$0")/../../.." || exit 1
out=build/test-c
. cgo/testing.sh

tests=cgo/front/tests
for test in library fork churn group args failure nocore core redop options conf memory other membership nonblocking \
  survivors properties ends onesided quick stays leaves; do
  compile $test $tests/$test.c $link
done
compile cpu_spread -D_GNU_SOURCE $tests/cpu_spread.c cgo/front/cpu_spread.c $link
compile load $tests/load.c -ldl # opens the library itself
library liar.so liar.so $tests/liar.c -fvisibility=default -Llib -lnccl
library counting.so counting.so $tests/counting.c -fvisibility=default -ldl
# Another libnccl and a driver, with the names of installed ones.
library fake/libnccl.so.2 libnccl.so.2 $tests/fake.c -fvisibility=default
library cuda/libcuda.so.1 libcuda.so.1 $tests/fakecuda.c -fvisibility=default
# The front of another build of this version.
version=$(sed -n 's/^const Version = "\(.*\)"/\1/p' shim/bootstrap/version.go)
mkdir -p "$out/elsewhere" "$out/second"
library elsewhere/newer.so libnccl.so.2 -D_GNU_SOURCE -DLP_VERSION="\"$version\"" -DLP_BUILD="\"$version+other\"" \
  cgo/front/*.c cgo/front/combine/*.c -ldl
# The header in C and C++ with all warnings.
{
  echo '#include <nccl.h>'
  echo 'int main(void) { ncclConfig_t c = NCCL_CONFIG_INITIALIZER; return sizeof c != 120; }'
} >"$out/header.c"
strict="-pedantic -Wall -Wextra -Werror -Icgo/front"
compiled
ln -sf "$lib" "$out/elsewhere/libnccl.so.2"
cp lib/libnccl.so.2 lib/liblightpath.so "$out/second/"
rm -f "$out"/fake/log*

check layers "${PYTHON:-python3}" $tests/layers.py cgo/front
header() { # STANDARD COMPILER...
  check "header-$1" sh -c "${*:2} -std=$1 $strict $out/header.c -o $out/header-$1 && $out/header-$1"
}
header c99 "${CC:-cc}"
header c11 "${CC:-cc}"
header c++11 "${CXX:-c++}" -x c++

check churn "$out/churn"
check load-now "$out/load" "$lib" now
check load-lazy "$out/load" "$lib" lazy
check load-relative "$out/load" lib/libnccl.so.2 lazy
check load-symlink "$out/load" "$out/elsewhere/libnccl.so.2" lazy
check load-bind-now LD_BIND_NOW=1 "$out/load" "$lib" lazy
for test in library fork group ends onesided args membership nonblocking survivors redop properties memory failure; do
  check $test "$out/$test"
done
check onesided-tcp LIGHTPATH_TRANSPORT=tcp "$out/onesided"
check survivors-tcp LIGHTPATH_TRANSPORT=tcp "$out/survivors"
for transport in shm tcp; do
  for how in destroy leave exit kill; do
    for call in allreduce sendrecv group; do
      check "leaves-$transport-$how-$call" LIGHTPATH_TRANSPORT=$transport "$out/leaves" $how $call 2
    done
    for call in allreduce sendrecv; do
      check "leaves-$transport-$how-$call-leader" LIGHTPATH_TRANSPORT=$transport "$out/leaves" $how $call 0
    done
  done
done
check never-comes LIGHTPATH_TIMEOUT=1s "$out/nonblocking" never
for ranks in 2 3 5; do check "quick-$ranks" LIGHTPATH_TRANSPORT=shm "$out/quick" $ranks; done
# LIGHTPATH_METRICS sums up all calls of the communicator that ends well, on both ranks. Most of them are made in C.
rm -rf "$out/metrics"
sums='{ match($0, /communicator="[^"]*"/); c = FILENAME substr($0, RSTART, RLENGTH) } /state="finalized"/ { well[c] }
  /^lightpath_rank_calls_total/ { calls[c] += $2 } /^lightpath_rank_operations_total/ { ended[c] += $2 }
  END { for (c in well) n += calls[c] > 5000 && calls[c] == ended[c]; exit n != 2 }'
check quick-metrics LIGHTPATH_TRANSPORT=shm LIGHTPATH_METRICS="$out/metrics" \
  sh -c "$out/quick 2 && awk '$sums' $out/metrics/*.prom"
for ranks in 2 3; do
  check "stays-$ranks" LIGHTPATH_TRANSPORT=shm LIGHTPATH_CORE="$root/$out/counting.so" \
    COUNTING_CORE="$root/lib/liblightpath.so" "$out/stays" $ranks
done
check cpu-spread LIGHTPATH_TRANSPORT=shm "$out/cpu_spread"
check conf "$out/conf" "$out/nccl.conf"
check options LIGHTPATH_PLANES=2 "$out/options"

other() { # NAME MODE LIBRARY [VARIABLE=VALUE...]
  local name=other-$1 mode=$2 library=$3
  shift 3
  check "$name" LD_LIBRARY_PATH="$root/$out/cuda" LIGHTPATH_NCCL_FALLBACK_LIB="$library" \
    FAKE_LOG="$out/fake/log-$name" "$@" "$out/other" "$mode"
}
fake=$root/$out/fake/libnccl.so.2
other both both "$fake"
other none none "$fake" LIGHTPATH_FALLBACK=none
other all all "$fake" LIGHTPATH_FALLBACK=all
other no-device no-device "$fake" FAKE_NO_DEVICE=1
other self "is Lightpath itself" "$lib"
other copy "second/libnccl.so.2 is Lightpath itself" "$root/$out/second/libnccl.so.2"
other missing "cannot load" /nonexistent/libnccl.so.2
other policy "is none of auto, interpose, all, none" "$fake" LIGHTPATH_FALLBACK=sometimes

check core "$out/core" "$root/lib/liblightpath.so"
check no-core LIGHTPATH_CORE=/nonexistent/core.so "$out/nocore" /nonexistent/core.so
check wrong-core LIGHTPATH_CORE=libc.so.6 "$out/nocore" "does not fit" # a library, but no core
check build-skew LD_PRELOAD="$root/$out/elsewhere/newer.so" LIGHTPATH_CORE="$root/lib/liblightpath.so" \
  "$out/nocore" "this libnccl.so.2 (Lightpath $version+other)"
check preload-bash LD_PRELOAD="$lib" bash -c '
  grep -q libnccl /proc/$$/maps && [ "$(ls /proc/$$/task | wc -l)" = 1 ] && [ "$(echo a | tr a b)" = b ]'
check preload-python LD_PRELOAD="$lib" "${PYTHON:-python3}" $tests/preload.py
check multiprocessing "${PYTHON:-python3}" $tests/multiprocessing_nccl.py "$lib"
check worker $tests/worker.sh "$root/bin/lightpath-rank" "$root/$out/liar.so" "$root/$out/worker"
finish
