package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/Mellanox/rdmamap"
	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/shim/topology"
)

// gpuTimeout bounds the helper that asks NVML: a driver that hangs must not hang the rest.
const gpuTimeout = 15 * time.Second

// NewTopo returns the command "topo".
func NewTopo() *cobra.Command {
	var fabricPath string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "topo [--fabric f.yaml]",
		Short: "Show NUMA nodes, NICs, RDMA devices, GPUs, how far apart they are, and the planes on them",
		Long: `Shows this machine: NUMA nodes, NICs, RDMA devices, GPUs, how far apart they are, and the planes on them.
"lightpath topology" is another command: it plans whole clusters.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from := topology.Sources{
				Sysfs:       os.DirFS("/sys"),
				CharDevices: rdmamap.GetRdmaCharDevices,
				RDMAOf:      rdmamap.GetRdmaDeviceForNetdevice,
				GPUs:        askNVML,
			}
			if fabricPath != "" {
				var err error
				if from.Fabric, err = cli.LoadFabric(fabricPath); err != nil {
					return err
				}
			}
			m := topology.Discover(cmd.Context(), from)
			if asJSON {
				return cli.PrintJSON(m)
			}
			return printTopology(cli.Stdout, m)
		},
	}
	fl := cmd.Flags()
	cli.FabricFlag(cmd, &fabricPath, "fabric file whose planes to look for")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// askNVML runs lightpath-nvml, which lies beside this program.
func askNVML(ctx context.Context) (topology.GPUReport, error) {
	path, err := cli.SiblingFile("bin", "lightpath-nvml")
	if err != nil {
		return topology.GPUReport{}, fmt.Errorf("NVML is not asked: %w", err)
	}
	return runNVML(ctx, path)
}

func runNVML(ctx context.Context, path string) (topology.GPUReport, error) {
	var report topology.GPUReport
	ctx, cancel := context.WithTimeout(ctx, gpuTimeout)
	defer cancel()
	helper := exec.CommandContext(ctx, path)
	// go-nvml resolves its symbols when they are called, and many are of newer drivers.
	helper.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LD_BIND_NOW=") })
	helper.WaitDelay = time.Second
	var failure bytes.Buffer
	helper.Stderr = &failure
	out, err := helper.Output()
	if err != nil {
		if ctx.Err() != nil {
			return report, fmt.Errorf("NVML did not answer within %v", gpuTimeout)
		}
		if said, _, _ := strings.Cut(strings.TrimSpace(failure.String()), "\n"); said != "" {
			err = errors.New(strings.TrimPrefix(said, "lightpath-nvml: "))
		}
		return report, err
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return report, fmt.Errorf("%s: %w", path, err)
	}
	return report, nil
}
