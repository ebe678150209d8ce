package topology

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/lumos"
	"lightpath/plans/lumos/picture"
)

// sizeCell is one cell of the table of sizes.
type sizeCell struct {
	Architecture string  `json:"architecture"`
	ChipTbps     float64 `json:"chip_tbps"`
	PortGbps     int     `json:"port_gbps"`
	GPUs         int     `json:"gpus"`
}

func newLumosSizes() *cobra.Command {
	var asJSON bool
	ocs := lumos.TableOCS
	cmd := &cobra.Command{
		Use:   "sizes",
		Short: "The most GPUs that Clos and LumosCore join, by switch chip and port rate (LumosCore, Table 1)",
		Args:  cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if err := cli.Within("--k-ocs", ocs, 1, lumos.MaxPorts); err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(sizeCells(ocs))
			}
			return printSizes(cli.Stdout, ocs)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with exact numbers")
	cmd.Flags().IntVar(&ocs, "k-ocs", ocs, "ports of an OCS in each direction")
	return cmd
}

func sizeCells(ocs int) []sizeCell {
	var all []sizeCell
	for _, a := range lumos.Architectures() {
		for _, chip := range lumos.ChipTbps {
			for _, port := range lumos.PortGbps {
				all = append(all, sizeCell{a.Name, chip, port, a.GPUs(lumos.Radix(chip, port), ocs)})
			}
		}
	}
	return all
}

// printSizes prints the table in the form of the paper's.
func printSizes(w io.Writer, ocs int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	chips, ports := "Switch Chip Bw. (Tb/s)\t", "Per-port Bw. (Gb/s)\t"
	for _, chip := range lumos.ChipTbps {
		for _, port := range lumos.PortGbps {
			chips += fmt.Sprintf("%g\t", chip)
			ports += fmt.Sprintf("%d\t", port)
		}
	}
	fmt.Fprintf(t, "%s\n%s\n", chips, ports)
	for _, a := range lumos.Architectures() {
		fmt.Fprintf(t, "%s\t", a.Name)
		for _, chip := range lumos.ChipTbps {
			for _, port := range lumos.PortGbps {
				fmt.Fprintf(t, "%sk\t", a.Thousands(a.GPUs(lumos.Radix(chip, port), ocs)))
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// lumosFlags are the sizes of a cluster.
type lumosFlags struct{ f lumos.Fabric }

func (l *lumosFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&l.f.Pods, "pods", 4, "pods")
	fl.IntVar(&l.f.KLeaf, "k-leaf", 8, "ports of a leaf to GPUs, and as many to spines")
	fl.IntVar(&l.f.KSpine, "k-spine", 8, "ports of a spine to leaves, and as many to OCSes")
	fl.IntVar(&l.f.Tau, "tau", 2, "links between a leaf and a spine of its pod, 1 or 2")
	fl.IntVar(&l.f.KOCS, "k-ocs", lumos.TableOCS, "ports of an OCS in each direction")
}

func newLumosWire() *cobra.Command {
	var l lumosFlags
	var wiring, out, check, svg string
	cmd := &cobra.Command{
		Use:   "wire --pods P --k-leaf K --k-spine K --tau 1|2",
		Short: "List the cables of a cluster, or check them as they were built",
		Long: `Writes the fibres between spines and optical switches as CSV, one line each: pod, spine, port, direction as
seen from the spine, group, OCS, port of the OCS. --check FILE checks such a list instead; the exit status is 1 if
some topology does not fit it. Cables within pods are regular: port p of a leaf goes to spine p / tau, and there to
port leaf x tau + p mod tau.`,
		Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if check != "" && out != "" {
				return errors.New("--out has no effect with --check")
			}
			var w lumos.Wiring
			if err := w.UnmarshalText([]byte(wiring)); err != nil {
				return fmt.Errorf("--wiring: %w", err)
			}
			if svg != "" {
				drawn, err := picture.Wiring(l.f, w)
				if err != nil {
					return err
				}
				if err := cli.WriteOutput("svg", svg, []byte(drawn)); err != nil {
					return err
				}
			}
			if check != "" {
				return checkCables(l.f, w, check)
			}
			cables, err := l.f.Cables(w)
			if err != nil {
				return err
			}
			return cli.WriteOutput("out", out, cablesCSV(cables))
		},
	}
	l.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&wiring, "wiring", lumos.Interleaved.String(),
		"interleaved, uniform (both ends of a port on one OCS) or doubled (two ports of every spine on each OCS)")
	fl.StringVar(&out, "out", "", "file to write; default standard output")
	fl.StringVar(&check, "check", "", "check this list of cables (- for standard input)")
	fl.StringVar(&svg, "svg", "", "also draw one group")
	return cmd
}

const cableHead = "pod,spine,port,direction,group,ocs,ocs_port"

func cablesCSV(cables []lumos.Cable) []byte {
	var b strings.Builder
	fmt.Fprintln(&b, cableHead)
	for _, c := range cables {
		fmt.Fprintf(&b, "%d,%d,%d,%s,%d,%d,%d\n", c.Pod, c.Spine, c.Port, c.Direction(), c.Spine, c.OCS, c.OCSPort)
	}
	return []byte(b.String())
}

// readCables reads what cablesCSV writes; errors name the line.
func readCables(text []byte) ([]lumos.Cable, error) {
	records := csv.NewReader(bytes.NewReader(text))
	records.FieldsPerRecord = strings.Count(cableHead, ",") + 1
	var all []lumos.Cable
	for {
		fields, err := records.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := records.FieldPos(0)
		if len(all) == 0 && strings.Join(fields, ",") == cableHead {
			continue
		}
		var n [7]int
		for i, field := range fields {
			switch {
			case i == 3 && field == "egress":
				n[i] = 1
			case i == 3 && field == "ingress":
			default:
				if n[i], err = strconv.Atoi(field); err != nil || i == 3 {
					return nil, fmt.Errorf("line %d: %s: %q", line, strings.Split(cableHead, ",")[i], field)
				}
			}
		}
		if n[1] != n[4] {
			return nil, fmt.Errorf("line %d: group: %d, but spines %d belong to group %d", line, n[4], n[1], n[1])
		}
		all = append(all, lumos.Cable{Pod: n[0], Spine: n[1], Port: n[2], Egress: n[3] == 1, OCS: n[5], OCSPort: n[6]})
	}
}

func checkCables(f lumos.Fabric, w lumos.Wiring, path string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	cables, err := cli.DecodeInput("check", path, readCables)
	if err != nil {
		return err
	}
	if err := f.CheckCables(w, cables); err != nil {
		return cli.No(fmt.Errorf("%s: %w", cli.InputName(path), err))
	}
	cli.Printf("%d cables, %s: every port of %d spines and all its fibres are in place\n", len(cables), w,
		f.Pods*f.Spines())
	return nil
}
