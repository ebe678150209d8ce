#!/usr/bin/env bash
# run.sh [-f FILE]... COMMAND... : runs COMMAND as root in a temporary virtual machine with soft-RoCE planes, and exits
# with its status. 77 means that no such machine can run here; the last line says why.
#
#   host a        plane i         host b           one kernel, one network namespace; policy routing
#   rxea$i -- pa$i ~~~~~~~ pb$i -- rxeb$i          sends packets from a to b over the wire
#   10.0.$i.1     (veth, 9000)    10.0.$i.2
#
# and a plane with circuits: rxec$i -- pc$i ~~~ sw$i, at 10.0.100.(i+1). tc rules at sw$i are the cross-connect. All
# ports are dark at first.
#
# Debian's kernel (flavour amd64: the cloud one lacks rdma_rxe) boots in QEMU with software emulation. So this needs no
# KVM and no RDMA, and no privilege except to install packages. The root file system has files of this machine: each
# FILE with the libraries it is linked with, at the same path. It checks functions only: times of an emulated machine
# mean nothing.
#
#   PLANES=2  SMP=2  MEM=2048 (MiB)  BOOT_LIMIT=240  RUN_LIMIT=600 (seconds)
#   CACHE: where the kernel is kept; default ${XDG_CACHE_HOME:-~/.cache}/lightpath/vm
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PLANES=${PLANES:-2} SMP=${SMP:-2} MEM=${MEM:-2048} BOOT_LIMIT=${BOOT_LIMIT:-240} RUN_LIMIT=${RUN_LIMIT:-600}
CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lightpath/vm}

skip() { echo "skip: $*"; exit 77; }
files=()
while [ "${1:-}" = -f ]; do files+=("$2"); shift 2; done
[ $# -gt 0 ] || { echo "usage: run.sh [-f FILE]... COMMAND..." >&2; exit 2; }

busybox=$(command -v busybox) || skip "no busybox (busybox-static)"
for tool in qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod modprobe:kmod rdma:iproute2 tc:iproute2 \
  ibv_devinfo:ibverbs-utils; do
  command -v "${tool%%:*}" >/dev/null || skip "no ${tool%%:*} (package ${tool##*:})"
done
[ -e /etc/libibverbs.d/rxe.driver ] || skip "no provider for soft-RoCE (package ibverbs-providers)"

# Unpacks the kernel, if no other run has done it.
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
if ! ls "$CACHE"/*/boot/vmlinuz-* >/dev/null 2>&1; then
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/{print $2; exit}')
  [ -n "$package" ] || skip "no package linux-image-amd64 is known here (Debian, apt-get update)"
  fresh=$(mktemp -d "$CACHE/.new.XXXXXX")
  if ! (cd "$fresh" && apt-get download -qq "$package" >/dev/null 2>&1); then
    rm -rf "$fresh"
    skip "package $package cannot be downloaded"
  fi
  dpkg-deb -x "$fresh"/*.deb "$fresh" && rm -f "$fresh"/*.deb
  depmod -b "$fresh" "$(ls "$fresh/lib/modules")"
  mv "$fresh" "$CACHE/$package"
fi
flock -u 9
kernel=$(ls -d "$CACHE"/*/boot/vmlinuz-* | sort -V | tail -1)
version=${kernel##*/vmlinuz-}
tree=${kernel%/boot/*}

work=$(mktemp -d "${TMPDIR:-/tmp}/lightpath-vm.XXXXXX")
qemu=
finish() { [ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true; rm -rf "$work"; }
trap finish EXIT
root=$work/root
mkdir -p "$root"/{proc,sys,dev,tmp,run,etc/libibverbs.d,modules,bb,var/run,usr/bin,usr/sbin,usr/lib,usr/lib64}
for d in bin sbin lib lib64; do ln -s usr/$d "$root/$d"; done

put() { # files with the libraries they are linked with
  local f l
  for f in "$@"; do
    mkdir -p "$root$(dirname "$f")"
    cp -L "$f" "$root$f"
    while read -r l; do
      [ -e "$root$l" ] || { mkdir -p "$root$(dirname "$l")"; cp -L "$l" "$root$l"; }
    done < <(ldd "$f" 2>/dev/null | grep -o '/[^ ]*' || true)
  done
}
put "$busybox"
for tool in bash ip tc rdma ibv_devinfo; do put "$(command -v $tool)"; done
for a in $("$busybox" --list); do ln -s "$busybox" "$root/bb/$a"; done
for l in /usr/lib/*/libibverbs.so.1 /usr/lib/*/libibverbs/librxe-rdmav*.so /lib/*/libgcc_s.so.1; do
  [ ! -e "$l" ] || put "$l"
done
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
[ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache "$root/etc/"
for f in "${files[@]}"; do put "$(readlink -f "$f")"; done

# rxe finds its CRC by name, not by dependency.
for m in crc32_pclmul rdma_rxe ib_uverbs veth sch_netem sch_tbf sch_ingress cls_matchall act_mirred; do
  modprobe -d "$tree" -S "$version" --show-depends "$m"
done | awk '$1=="insmod" && !seen[$2]++ {print $2}' | while read -r path; do
  name=$(basename "${path%.xz}")
  case $path in *.xz) xz -dc "$path" >"$root/modules/$name" ;; *) cp "$path" "$root/modules/$name" ;; esac
  echo "$name" >>"$root/modules/order"
done

cp "$here/init.sh" "$root/init"
chmod +x "$root/init"
echo "$PLANES" >"$root/planes"
printf '%s\n' "$*" >"$root/command"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd.gz"

# This processor has what soft-RoCE needs (PCLMULQDQ), and no wide vectors, which are slow to emulate.
qemu-system-x86_64 -accel tcg,thread=multi -cpu Westmere -m "$MEM" -smp "$SMP" -kernel "$kernel" \
  -initrd "$work/initrd.gz" -append "console=ttyS0 panic=-1 quiet mitigations=off" \
  -nographic -no-reboot -nodefaults -serial stdio </dev/null >"$work/serial" 2>&1 &
qemu=$!

# Copies the machine's output until the machine ends by itself or by a limit.
started=$SECONDS shown=0 up=
while :; do
  alive=1
  kill -0 "$qemu" 2>/dev/null || alive=
  size=$(stat -c %s "$work/serial")
  if [ "$size" -gt "$shown" ]; then
    tail -c "+$((shown + 1))" "$work/serial" | head -c "$((size - shown))" | tr -d '\r'
    shown=$size
  fi
  [ -n "$alive" ] || break
  [ -n "$up" ] || ! grep -aq 'VM-READY after' "$work/serial" || { up=1; started=$SECONDS; }
  limit=$BOOT_LIMIT
  [ -z "$up" ] || limit=$RUN_LIMIT
  if [ $((SECONDS - started)) -ge "$limit" ]; then
    [ -n "$up" ] || skip "the machine has not come up in $limit s"
    echo "the machine is not done after $limit s" >&2
    exit 1
  fi
  sleep 0.3
done
wait "$qemu" || true
qemu=
[ -n "$up" ] || grep -aq 'VM-READY after' "$work/serial" || skip "the machine does not come up here"
status=$(tr -d '\r' <"$work/serial" | sed -n 's/^VM-STATUS \([0-9]*\)$/\1/p' | tail -1)
[ -n "$status" ] || { echo "the machine ended without a status" >&2; exit 1; }
exit "$status"
