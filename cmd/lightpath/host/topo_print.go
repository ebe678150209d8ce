package host

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"lightpath/shim/topology"
)

// matrixColumns is how many adapters of the distance matrix fit a line of 120 columns.
const matrixColumns = 14

// printTopology writes the tables of m that have rows.
func printTopology(out io.Writer, m *topology.Machine) error {
	var b strings.Builder
	for _, part := range []func(*strings.Builder, *topology.Machine){
		nodeTable, nicTable, rdmaTable, gpuTable, distanceTable, planeTable, warningList,
	} {
		var table strings.Builder
		part(&table, m)
		if table.Len() > 0 && b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(table.String())
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// table writes lines of cells in aligned columns below their heading, and nothing where there are none.
func table(w *strings.Builder, lines [][]any) {
	if len(lines) < 2 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		text := make([]string, len(cells))
		for i, c := range cells {
			if text[i] = fmt.Sprint(c); text[i] == "" {
				text[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(text, "\t"))
	}
	_ = t.Flush() // into memory
}

func numa(node int) string {
	if node == topology.Unknown {
		return "-"
	}
	return strconv.Itoa(node)
}

func gibibytes(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func gigabits(mbps int) string {
	if mbps == 0 {
		return "-"
	}
	return fmt.Sprintf("%g Gb/s", float64(mbps)/1e3)
}

func nodeTable(w *strings.Builder, m *topology.Machine) {
	lines := [][]any{{"NUMA", "MEMORY", "CPUS"}}
	for _, n := range m.Nodes {
		lines = append(lines, []any{n.ID, gibibytes(n.MemoryBytes), n.CPUs})
	}
	table(w, lines)
}

// nicTable leaves out virtual interfaces that no plane names: a host with containers has hundreds.
func nicTable(w *strings.Builder, m *topology.Machine) {
	wanted := map[string]bool{}
	for _, p := range m.Planes {
		wanted[p.Interface] = true
	}
	lines, left := [][]any{{"NIC", "STATE", "SPEED", "DRIVER", "PCI", "NUMA", "RDMA", "SR-IOV"}}, 0
	for _, n := range m.NICs {
		if n.PCI == "" && n.RDMA == "" && !wanted[n.Name] {
			left++
			continue
		}
		virtual := ""
		switch {
		case n.PhysicalFunction != "":
			virtual = "of " + n.PhysicalFunction
		case n.VirtualFunctions > 0:
			virtual = fmt.Sprintf("%d functions", n.VirtualFunctions)
		}
		lines = append(lines, []any{n.Name, n.State, gigabits(n.SpeedMbps), n.Driver, n.PCI, numa(n.NUMANode), n.RDMA,
			virtual})
	}
	table(w, lines)
	if left > 0 {
		fmt.Fprintf(w, "virtual interfaces not shown: %d (--json has them)\n", left)
	}
}

func rdmaTable(w *strings.Builder, m *topology.Machine) {
	lines := [][]any{{"HCA", "STATE", "RATE", "LINK", "NETDEV", "GIDS", "PCI", "NUMA", "DEVICE"}}
	for _, d := range m.RDMA {
		device := ""
		for _, c := range d.CharDevices {
			if strings.Contains(c, "uverbs") {
				device = c
			}
		}
		for _, p := range d.Ports {
			lines = append(lines, []any{
				fmt.Sprintf("%s:%d", d.Name, p.Number), p.State, fmt.Sprintf("%g Gb/s", p.RateGbps), p.LinkLayer,
				p.Netdev, len(p.GIDs), d.PCI, numa(d.NUMANode), device,
			})
		}
	}
	table(w, lines)
}

func gpuTable(w *strings.Builder, m *topology.Machine) {
	lines := [][]any{{"GPU", "NAME", "MEMORY", "PCI", "NUMA", "NVLINKS"}}
	for _, g := range m.GPUs {
		ends := make([]string, len(g.NVLinks))
		for i, l := range g.NVLinks {
			ends[i] = fmt.Sprintf("%dx %s %s", l.Links, l.Kind, strings.TrimPrefix(l.PCI, "0000:"))
		}
		// A GPU of a switched system has one far end per switch; the sum says enough.
		if len(ends) > 2 {
			total := 0
			for _, l := range g.NVLinks {
				total += l.Links
			}
			ends = []string{fmt.Sprintf("%d to %d ends", total, len(g.NVLinks))}
		}
		lines = append(lines, []any{g.Label(), g.Name, gibibytes(g.MemoryBytes), g.PCI, numa(g.NUMANode),
			strings.Join(ends, ", ")})
	}
	table(w, lines)
}

func distanceTable(w *strings.Builder, m *topology.Machine) {
	x := m.Distances
	if len(x.Rows) == 0 || len(x.NICs) == 0 {
		return
	}
	for from := 0; from < len(x.NICs); from += matrixColumns {
		to := min(from+matrixColumns, len(x.NICs))
		heading := []any{"DISTANCE"}
		for i := from; i < to; i++ {
			heading = append(heading, fmt.Sprintf("NIC%d", i))
		}
		lines := [][]any{heading}
		for g, row := range x.Rows {
			line := []any{m.GPUs[g].Label()}
			for _, d := range row[from:to] {
				line = append(line, d)
			}
			lines = append(lines, line)
		}
		table(w, lines)
	}
	for i, a := range x.NICs {
		fmt.Fprintf(w, "  NIC%d: %s (%s)\n", i, a.Label(), a.PCI)
	}
	fmt.Fprintln(w, "  PIX one bridge, PXB several, PHB a host bridge, NODE host bridges of a NUMA node, SYS "+
		"between NUMA nodes")
}

func planeTable(w *strings.Builder, m *topology.Machine) {
	gpus := map[string]string{}
	for _, g := range m.GPUs {
		gpus[g.PCI] = g.Label()
	}
	lines := [][]any{{"PLANE", "INTERFACE", "HCA", "PCI", "NUMA", "NEAREST", "DISTANCE", "STATE"}}
	for _, p := range m.Planes {
		state := "ok"
		switch {
		case len(p.Warnings) > 0:
			state = "see below"
		case p.Interface == "" && p.HCA == "":
			state = "names no interface"
		}
		lines = append(lines, []any{p.Name, p.Interface, p.HCA, p.PCI, numa(p.NUMANode), gpus[p.GPU], p.Distance, state})
	}
	table(w, lines)
}

// warningList says what is wrong with planes, and which parts could not be read.
func warningList(w *strings.Builder, m *topology.Machine) {
	for _, p := range m.Planes {
		for _, text := range p.Warnings {
			fmt.Fprintf(w, "plane %s: %s\n", p.Name, text)
		}
	}
	for _, p := range m.Problems {
		fmt.Fprintf(w, "not read: %s: %s\n", p.Part, p.Detail)
	}
}
