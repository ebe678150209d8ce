package endpoints

import (
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"lightpath/collectives/program"
	"lightpath/plans/fabric"
	"lightpath/shim/bootstrap"
	"lightpath/shim/control"
	"lightpath/shim/settings"
)

// PlaneMbps returns the rate of the slowest of this rank's TCP planes in Mb/s: as the fabric file states it, else of
// the links; 0 if it is not known, or if one plane needs no pieces. fab is the file if it has circuits, else nil.
// addresses are those of the planes, as in a [bootstrap.Hello].
func PlaneMbps(cfg *settings.Config, fab *Fabric, addresses string) int {
	if cfg.Planes == 1 {
		return 0
	}
	if stated := statedMbps(cfg, fab); stated > 0 {
		return stated
	}
	return linkMbps(addresses)
}

// statedMbps returns what the fabric file states, 0 if it states nothing.
func statedMbps(cfg *settings.Config, fab *Fabric) int {
	switch {
	case fab != nil:
		return int(math.Ceil(float64(fab.Packets.Bandwidth) / 1e6 / float64(cfg.Planes)))
	case cfg.Fabric == "":
		return 0
	}
	f, err := fabric.Load(cfg.Fabric)
	if err != nil { // the file was there when the process read it first
		return 0
	}
	return int(math.Ceil(1e3 * f.Problem().BandwidthGbps))
}

// linkMbps returns the rate of the slowest interface with one of the addresses, 0 if the kernel does not say all rates.
func linkMbps(addresses string) int {
	nics, err := net.Interfaces()
	if err != nil {
		return 0
	}
	unknown := map[netip.Addr]bool{}
	for address := range strings.SplitSeq(addresses, ",") {
		at, _ := netip.ParseAddrPort(address) // without an address it is that of no interface
		unknown[at.Addr()] = true
	}
	slowest := math.MaxInt
	for _, nic := range nics {
		at, _, ok := control.UsableAddress(nic)
		if !ok || !unknown[at] {
			continue
		}
		text, _ := os.ReadFile(filepath.Join("/sys/class/net", nic.Name, "speed"))
		if speed, _ := strconv.Atoi(strings.TrimSpace(string(text))); speed > 0 { // -1: no link
			delete(unknown, at)
			slowest = min(slowest, speed)
		}
	}
	if len(unknown) > 0 {
		return 0
	}
	return slowest
}

// leastPiece is the smallest piece on the slowest planes: less than a packet.
const leastPiece = 1 << 10

// MinPiece returns the smallest piece of a flow that uses a TCP plane of its own, in bytes: as many as take 50 us on
// the slowest plane of all ranks. A further piece costs both ranks a system call, 5 to 20 us.
func MinPiece(table []bootstrap.Hello) int64 {
	slowest := math.MaxInt
	for i := range table {
		if mbps := table[i].PlaneMbps; mbps > 0 {
			slowest = min(slowest, mbps)
		}
	}
	const bytesOfMbps = 50.0 / 8 // in 50 us
	return int64(min(max(bytesOfMbps*float64(slowest), leastPiece), program.DefaultMinPiece))
}
