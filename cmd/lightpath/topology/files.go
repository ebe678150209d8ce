package topology

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/circuit"
	"lightpath/plans/delta"
	"lightpath/plans/delta/dag"
	"lightpath/plans/fabric"
)

// planeFiles are the files with which switches take a topology.
type planeFiles struct {
	fabric, maps, ocsd, endpoint string
	names                        []string // of the planes; none: port0, port1, ...
	reconfig                     time.Duration
	control                      controlFlags
}

// controlFlags are the settings for the control of circuits in the files of a planned topology.
type controlFlags struct{ pinnedBy, listen string }

func (f *controlFlags) register(cmd *cobra.Command, owner string) {
	fl := cmd.Flags()
	fl.StringVar(&f.pinnedBy, "pinned-by", owner,
		`owner of the circuits, in the fabric file: jobs use them as they are ("": jobs move them)`)
	fl.StringVar(&f.listen, "listen", "127.0.0.1:7442",
		`host:port of the controller for operators, in the controller file ("": none)`)
}

// checkFileFlags returns an error if a flag of the fabric file or of the controller file is given without that file.
// more are further flags of the fabric file.
func checkFileFlags(fl *pflag.FlagSet, more ...string) error {
	return cmp.Or(cli.Needs(fl, "fabric", append([]string{"ocsd", "endpoint", "reconfig", "pinned-by"}, more...)...),
		cli.Needs(fl, "ocsd", "listen"))
}

func (f *planeFiles) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.fabric, "fabric", "", "fabric file to write: a rank per pod, a plane per port")
	fl.StringVar(&f.maps, "maps", "", "directory for the map of each plane")
	fl.StringSliceVar(&f.names, "plane-names", nil,
		"names of the planes in these files, as in the fabric file of a cluster (default port0,port1,...)")
	fl.StringVar(&f.ocsd, "ocsd", "", "controller file to write, whose planes start with these maps; needs --fabric")
	fl.StringVar(&f.endpoint, "endpoint", "unix:/tmp/lightpath-ocs.sock",
		"socket of the emulated switch, for the fabric file")
	fl.DurationVar(&f.reconfig, "reconfig", 10*time.Millisecond, "reconfiguration time of the switch, for the fabric file")
	f.control.register(cmd, jobOwner)
}

// jobOwner stands for the name of the job where a job owns circuits.
const jobOwner = "job"

// check makes the directory of the maps. It returns an error if a flag has no effect, or a file cannot be written.
func (f *planeFiles) check(fl *pflag.FlagSet) error {
	switch {
	case f.ocsd != "" && f.fabric == "-":
		return errors.New("--ocsd needs --fabric with a file")
	case f.maps == "-":
		return errors.New("--maps: a directory, not standard output")
	case f.names != nil && f.fabric == "" && f.maps == "":
		return errors.New("--plane-names needs --fabric or --maps")
	}
	if err := checkFileFlags(fl); err != nil {
		return err
	}
	if f.maps != "" {
		if err := os.MkdirAll(f.maps, 0o755); err != nil {
			return fmt.Errorf("--maps: %w", err)
		}
	}
	return cmp.Or(cli.CheckOutput("fabric", f.fabric), cli.CheckOutput("ocsd", f.ocsd))
}

func (f *planeFiles) write(g *dag.Graph, c dag.Circuits) error {
	if f.fabric == "" && f.maps == "" {
		return nil
	}
	maps, err := delta.Maps(g, c)
	if err != nil {
		return err
	}
	names, err := f.planes(len(maps))
	if err != nil {
		return err
	}
	if f.fabric != "" {
		ocs := fabric.OCS{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: f.endpoint, Reconfig: f.reconfig}
		file, err := delta.Fabric(g, names, ocs)
		if err != nil {
			return fmt.Errorf("--fabric: %w", err)
		}
		if file.PinnedBy = f.control.pinnedBy; file.PinnedBy == jobOwner {
			file.PinnedBy = cmp.Or(g.Name, jobOwner)
		}
		if err := writeFabric(f.fabric, file); err != nil {
			return err
		}
	}
	if f.ocsd != "" {
		if err := f.control.writeOCSD(f.ocsd, f.fabric, maps); err != nil {
			return err
		}
	}
	if f.maps == "" {
		return nil
	}
	return writePlaneMaps(f.maps, names, maps)
}

// writeFabric writes a fabric file whose planes are valid.
func writeFabric(path string, file *fabric.Fabric) error {
	text := file.Encode()
	if _, err := fabric.Decode(text); err != nil {
		return fmt.Errorf("--pinned-by: %w", err)
	}
	return cli.WriteOutput("fabric", path, text)
}

// planes returns the names of n planes.
func (f *planeFiles) planes(n int) ([]string, error) {
	switch {
	case f.names == nil:
		return delta.PlaneNames(n), nil
	case len(f.names) < n:
		return nil, fmt.Errorf("--plane-names: %d names, and the topology needs %d planes", len(f.names), n)
	}
	for j, name := range f.names[:n] {
		switch {
		case name == "" || name != filepath.Base(name):
			return nil, fmt.Errorf("--plane-names: %q cannot name a file of a plane", name)
		case slices.Contains(f.names[:j], name):
			return nil, fmt.Errorf("--plane-names: %q appears twice", name)
		}
	}
	return f.names[:n], nil
}

// writePlaneMaps writes a file per plane into a directory.
func writePlaneMaps(dir string, names []string, maps []circuit.Permutation) error {
	for j, m := range maps {
		if err := cli.WriteOutput("maps", filepath.Join(dir, names[j]+".json"), append(mapText(m), '\n')); err != nil {
			return err
		}
	}
	return nil
}

// writeOCSD writes the file of a controller whose planes begin with the given maps.
func (f *controlFlags) writeOCSD(path, fabricPath string, maps []circuit.Permutation) error {
	fabricPath, err := filepath.Abs(fabricPath)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "version: %d\nfabric: %q\n", fabric.Version, fabricPath)
	if f.listen != "" {
		fmt.Fprintf(&b, "listen: %q\n", f.listen)
	}
	fmt.Fprintln(&b, "initial:")
	for _, m := range maps {
		fmt.Fprintf(&b, "  - %s\n", mapText(m))
	}
	if _, err := fabric.DecodeOCSD([]byte(b.String())); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return cli.WriteOutput("ocsd", path, []byte(b.String()))
}
