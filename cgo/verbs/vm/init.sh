#!/bin/bash
# The first process of the machine that run.sh boots: makes the planes, runs /command, powers off.
export PATH=/usr/bin:/usr/sbin:/bb HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
ulimit -l unlimited
while read -r m; do insmod "/modules/$m" || echo "module $m does not load"; done </modules/order
ip link set lo up
sysctl -q -w net.ipv4.conf.all.accept_local=1 net.ipv4.conf.default.accept_local=1 \
  net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
# Both ends of a plane are in this namespace (rxe in other namespaces does not work). Without these rules, packets
# between them would use lo.
ip rule add pref 100 lookup local
ip rule del pref 0
planes=
for i in $(seq 0 $(($(cat /planes) - 1))); do
  ip link add "pa$i" type veth peer name "pb$i"
  ip addr add "10.0.$i.1/24" dev "pa$i"
  ip addr add "10.0.$i.2/24" dev "pb$i"
  ip link set "pa$i" mtu 9000 up
  ip link set "pb$i" mtu 9000 up
  rdma link add "rxea$i" type rxe netdev "pa$i"
  rdma link add "rxeb$i" type rxe netdev "pb$i"
  ip route add "10.0.$i.2" dev "pa$i" src "10.0.$i.1" table $((1000 + i))
  ip route add "10.0.$i.1" dev "pb$i" src "10.0.$i.2" table $((2000 + i))
  ip rule add pref 10 iif lo from "10.0.$i.1" to "10.0.$i.2" lookup $((1000 + i))
  ip rule add pref 11 iif lo from "10.0.$i.2" to "10.0.$i.1" lookup $((2000 + i))
  planes+=" rxea$i,rxeb$i"
done
ports=
for i in 0 1 2 3; do
  ip link add "pc$i" type veth peer name "sw$i"
  ip link set "pc$i" mtu 9000 address "02:00:00:00:00:0$i" up
  ip link set "sw$i" mtu 9000 up
  ip addr add "10.0.100.$((i + 1))/24" dev "pc$i"
  tc qdisc add dev "sw$i" clsact
  rdma link add "rxec$i" type rxe netdev "pc$i"
  ip route add 10.0.100.0/24 dev "pc$i" src "10.0.100.$((i + 1))" table $((3000 + i))
  ip rule add pref 12 iif lo from "10.0.100.$((i + 1))" to 10.0.100.0/24 lookup $((3000 + i))
  for j in 0 1 2 3; do # nothing travels backwards, ARP neither
    [ "$i" = "$j" ] || ip neigh add "10.0.100.$((j + 1))" lladdr "02:00:00:00:00:0$j" dev "pc$i" nud permanent
  done
  ports+=" rxec$i,sw$i"
done
export LIGHTPATH_TEST_RDMA="${planes# }" LIGHTPATH_TEST_RDMA_CIRCUITS="${ports# }"
echo "VM-READY after $(cut -d' ' -f1 /proc/uptime) s: $LIGHTPATH_TEST_RDMA"
bash -c "$(cat /command)"
status=$?; echo
echo "VM-STATUS $status"
poweroff -f
