package lumos

import (
	"fmt"
	"strconv"
)

// TableOCS is the port count of the OCSes in LumosCore's Table 1.
const TableOCS = 512

// Architecture is a way to build a cluster of switch chips, as LumosCore's Table 1 compares them.
type Architecture struct {
	Name string
	// GPUs returns the most GPUs that chips of radix ports, even, and OCSes of ocs ports can join.
	GPUs func(radix, ocs int) int
	// whole: the table prints this row in whole thousands, rounded down; the others with two digits.
	whole bool
}

// Architectures returns the rows of Table 1, in its order.
func Architectures() []Architecture {
	return []Architecture{
		{Name: "Clos(2-tier)", GPUs: func(radix, _ int) int { return radix * radix / 2 }},
		{Name: "Clos(3-tier)", GPUs: func(radix, _ int) int { return radix * radix / 2 * radix / 2 }},
		// 15 ports of a spine go down for every one that goes up, rounded down; leaves are not over-subscribed.
		{Name: "Clos(3-tier-15:1)", GPUs: func(radix, _ int) int { return radix * radix / 2 * (radix * 15 / 16) }},
		{Name: "LumosCore(tau=2)", GPUs: func(radix, ocs int) int { return largest(radix, 2, ocs).GPUs() }, whole: true},
		{Name: "LumosCore(tau=1)", GPUs: func(radix, ocs int) int { return largest(radix, 1, ocs).GPUs() }},
	}
}

// largest is the largest cluster of chips of one radix: half of every chip's ports go up.
func largest(radix, tau, ocs int) Fabric {
	return Fabric{Pods: ocs, KLeaf: radix / 2, KSpine: radix / 2, Tau: tau, KOCS: ocs}
}

// Thousands writes a number of GPUs as Table 1 does in this row, without its k.
func (a Architecture) Thousands(gpus int) string {
	if a.whole {
		return fmt.Sprintf("%d.0", gpus/1000)
	}
	rounded, _ := strconv.ParseFloat(fmt.Sprintf("%.2f", float64(gpus)/1000), 64) // what Sprintf wrote
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// ChipTbps and PortGbps are the columns of Table 1.
var (
	ChipTbps = []float64{12.8, 25.6, 51.2}
	PortGbps = []int{200, 400, 800, 1600}
)

// Radix returns how many ports of a rate a chip has, rounded down.
func Radix(chipTbps float64, portGbps int) int { return int(chipTbps*1e3+0.5) / portGbps }
