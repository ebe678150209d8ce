package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/settings"
	"lightpath/shim/topology"
)

// finding is the result of one check of doctor.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// NewDoctor returns the command "doctor".
func NewDoctor() *cobra.Command {
	var env, asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine and installation; exit 1 if something is missing",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if env {
				return printEnv(asJSON)
			}
			findings := examine()
			if asJSON {
				if err := cli.PrintJSON(findings); err != nil {
					return err
				}
			}
			var bad error
			for _, f := range findings {
				mark := "ok  "
				if !f.OK {
					mark, bad = "FAIL", cli.No(errors.New("something is missing; see above"))
				}
				if !asJSON {
					cli.Printf("%s %-20s %s\n", mark, f.Check, f.Detail)
				}
			}
			return bad
		},
	}
	cmd.Flags().BoolVar(&env, "env", false, "list the environment variables that Lightpath reads")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printEnv(asJSON bool) error {
	vars := settings.Vars()
	if asJSON {
		type row struct {
			Name    string `json:"name"`
			Type    string `json:"type"`
			Default string `json:"default"`
			Doc     string `json:"doc"`
			Value   string `json:"value"`
		}
		rows := make([]row, len(vars))
		for i, v := range vars {
			rows[i] = row{v.Name, v.Type, v.Default, v.Doc, os.Getenv(v.Name)}
		}
		return cli.PrintJSON(rows)
	}
	for _, v := range vars {
		cli.Printf("%s (%s", v.Name, v.Type)
		if v.Default != "" {
			cli.Printf("; default %s", v.Default)
		}
		cli.Printf(")\n    %s\n", v.Doc)
		if set := os.Getenv(v.Name); set != "" {
			cli.Printf("    now: %s\n", set)
		}
	}
	return nil
}

// examine checks what ranks on this machine need.
func examine() []finding {
	m := topology.Discover(context.Background(), topology.Sources{Sysfs: os.DirFS("/sys")})
	c, err := settings.Load() // nil with an error
	findings := []finding{
		{"version", true, fmt.Sprintf("lightpath %s, %s, %d CPUs", shim.Version, runtime.Version(), runtime.NumCPU())},
		installed("lib", "libnccl.so.2"), installed("lib", "liblightpath.so"), installed("bin", "lightpath-rank"),
		sharedMemory(), environment(c, err), kernelPlanes(), rdmaPorts(m, c), gpuDirect(m, c),
	}
	if path := os.Getenv(cli.FabricVariable); path != "" {
		findings = append(findings, fabricFile(path))
	}
	return append(findings, launcher("mpirun"), launcher("torchrun"))
}

func installed(dir, name string) finding {
	path, err := cli.SiblingFile(dir, name)
	if err != nil {
		return finding{name, false, err.Error()}
	}
	return finding{name, true, path}
}

// sharedMemory warns below what eight ranks use at most.
func sharedMemory() finding {
	const wanted = 256 << 20
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil {
		return finding{"/dev/shm", false, err.Error() + ": ranks on one host share memory there"}
	}
	free := s.Bavail * uint64(s.Bsize)
	return finding{"/dev/shm", free >= wanted, fmt.Sprintf("%d MiB free (%d wanted)", free>>20, wanted>>20)}
}

// rdmaPorts names the ports that ranks can use. To have none is a fault only if the settings, nil if they cannot be
// read, require them.
func rdmaPorts(m *topology.Machine, c *settings.Config) finding {
	const check = "rdma"
	names, active := portsOf(m)
	wanted := c != nil && c.Wants(settings.TransportRDMA) != ""
	switch {
	case len(names) == 0:
		return finding{check, !wanted, "no RDMA devices (optional)"}
	case len(active) == 0:
		return finding{check, !wanted, fmt.Sprintf("no port of %s is active", strings.Join(names, ", "))}
	case wanted && len(c.IB.HCAs.Select(names)) == 0:
		return finding{check, false, fmt.Sprintf("NCCL_IB_HCA means none of %s", strings.Join(names, ", "))}
	}
	return finding{check, true, "active ports: " + strings.Join(active, ", ")}
}

// portsOf names a machine's RDMA devices, and those of their ports that are active.
func portsOf(m *topology.Machine) (names, active []string) {
	for _, d := range m.RDMA {
		names = append(names, d.Name)
		for _, p := range d.Ports {
			if p.State == "ACTIVE" {
				active = append(active, fmt.Sprintf("%s:%d", d.Name, p.Number))
			}
		}
	}
	return names, active
}

// gpuDirect reports whether RDMA ports, or a network plugin, can access GPU memory directly. It is a fault that they
// cannot only if the settings, nil if they cannot be read, require it.
func gpuDirect(m *topology.Machine, c *settings.Config) finding {
	const check = "gpudirect"
	_, active := portsOf(m)
	if c == nil {
		return finding{check, true, "not known: the environment cannot be read"}
	}
	wanted, plugin := c.Device.Path == "rdma", c.Wants(settings.TransportNet)
	switch forbidden := c.ForbidsGPUDirect(); {
	case len(m.GPUs) == 0:
		return finding{check, !wanted, "no GPU (optional)"}
	case len(active) == 0 && plugin == "":
		return finding{check, !wanted, "no active RDMA port: GPUs of several hosts exchange data through host memory " +
			"(optional)"}
	case forbidden != "":
		return finding{check, true, "not used: " + forbidden}
	case plugin != "":
		return finding{check, true, fmt.Sprintf("GPUs: %d; used if the devices of the network plugin (%s) reach their "+
			"memory, of which NCCL_DEBUG=INFO tells", len(m.GPUs), plugin)}
	}
	return finding{check, true, fmt.Sprintf("GPUs: %d, active ports: %s; used over planes of RDMA ports that take "+
		"the driver's dma-bufs, of which NCCL_DEBUG=INFO tells",
		len(m.GPUs), strings.Join(active, ", "))}
}

func environment(c *settings.Config, err error) finding {
	if err != nil {
		return finding{"environment", false, err.Error()}
	}
	if w := c.Warnings(); len(w) > 0 {
		return finding{"environment", false, strings.Join(w, " ")}
	}
	return finding{"environment", true, "every variable is readable (lightpath doctor --env lists them)"}
}

func fabricFile(path string) finding {
	f, err := fabric.Load(path)
	if err != nil {
		return finding{"fabric", false, err.Error()}
	}
	return finding{"fabric", true, fmt.Sprintf("%s: %d ranks, %d planes", path, f.Ranks, len(f.Planes))}
}

// launcher reports an optional program; its absence is no fault.
func launcher(name string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		path = "not installed (optional)"
	}
	return finding{name, true, path}
}

// kernelPlanes reports whether "lightpath fabric up" can work here; that it cannot is no fault.
func kernelPlanes() finding {
	if err := kernel.Check(); err != nil {
		return finding{"kernel planes", true, err.Error() + " (optional: lightpath fabric up needs root and Linux 6.6)"}
	}
	return finding{"kernel planes", true, "namespaces, veth, TCX and HTB work"}
}
