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
// the links; 0 if it is not known. addresses are those of the planes, as in a [bootstrap.Hello].
func PlaneMbps(cfg *settings.Config, addresses string) int {
	if stated := statedMbps(cfg); stated > 0 {
		return stated
	}
	slowest := math.MaxInt
	for address := range strings.SplitSeq(addresses, ",") {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return 0
		}
		slowest = min(slowest, linkMbps(at.Addr()))
	}
	return slowest
}

// statedMbps returns what the fabric file states, 0 if it states nothing.
func statedMbps(cfg *settings.Config) int {
	if cfg.Fabric == "" {
		return 0
	}
	f, err := fabric.Load(cfg.Fabric) // LoadFabric has reported an error
	switch {
	case err != nil:
		return 0
	case f.Optical():
		return int(math.Ceil(float64(f.Packets.Bandwidth) / 1e6 / float64(cfg.Planes)))
	default:
		return int(math.Ceil(1e3 * f.Problem().BandwidthGbps))
	}
}

// linkMbps returns the rate of the interface with an address, 0 if the kernel does not say it.
func linkMbps(address netip.Addr) int {
	nics, err := net.Interfaces()
	if err != nil {
		return 0
	}
	for _, nic := range nics {
		if at, _, ok := control.UsableAddress(nic); !ok || at != address {
			continue
		}
		text, _ := os.ReadFile(filepath.Join("/sys/class/net", nic.Name, "speed"))
		speed, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return max(speed, 0) // -1: no link
	}
	return 0
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
