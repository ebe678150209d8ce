package topology

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/circuit"
	"lightpath/plans/delta"
	"lightpath/plans/delta/dag"
	"lightpath/plans/fabric"
)

// circuitFiles are the files with which switches and jobs take planned circuits.
type circuitFiles struct {
	fabric, maps, ocsd         string
	endpoint, pinnedBy, listen string
	reconfig                   time.Duration
}

func (f *circuitFiles) register(fl *pflag.FlagSet, fabricUsage, mapsUsage, owner string) {
	fl.StringVar(&f.fabric, "fabric", "", fabricUsage)
	fl.StringVar(&f.maps, "maps", "", mapsUsage)
	fl.StringVar(&f.ocsd, "ocsd", "", "controller file to write, whose planes start with these maps; needs --fabric")
	fl.StringVar(&f.endpoint, "endpoint", "unix:/tmp/lightpath-ocs.sock",
		"socket of the emulated switch, for the fabric file")
	fl.DurationVar(&f.reconfig, "reconfig", 10*time.Millisecond, "reconfiguration time of the switch, for the fabric file")
	fl.StringVar(&f.pinnedBy, "pinned-by", owner,
		`owner of the circuits, in the fabric file: jobs use them as they are ("": jobs move them)`)
	fl.StringVar(&f.listen, "listen", "127.0.0.1:7442",
		`host:port of the controller for operators, in the controller file ("": none)`)
}

// check makes the directory of the maps. It returns an error if a flag has no effect, or a file cannot be written.
// more are further flags of the fabric file.
func (f *circuitFiles) check(fl *pflag.FlagSet, more ...string) error {
	switch {
	case f.ocsd != "" && f.fabric == "-":
		return errors.New("--ocsd needs --fabric with a file")
	case f.maps == "-":
		return errors.New("--maps: a directory, not standard output")
	}
	err := cmp.Or(cli.Needs(fl, "fabric", append([]string{"ocsd", "endpoint", "reconfig", "pinned-by"}, more...)...),
		cli.Needs(fl, "ocsd", "listen"), cli.CheckOutput("fabric", f.fabric), cli.CheckOutput("ocsd", f.ocsd))
	if err != nil || f.maps == "" {
		return err
	}
	if err := os.MkdirAll(f.maps, 0o755); err != nil {
		return fmt.Errorf("--maps: %w", err)
	}
	return nil
}

// write writes the fabric file and, if it is wanted, the file of a controller whose planes begin with the given maps.
// If one of them cannot be, it writes none.
func (f *circuitFiles) write(file *fabric.Fabric, maps []circuit.Permutation) error {
	file.PinnedBy = f.pinnedBy
	text := file.Encode()
	if _, err := fabric.Decode(text); err != nil { // names what a flag cannot be
		return fmt.Errorf("--fabric: %w", err)
	}
	controller, err := f.controller(maps)
	if err != nil {
		return fmt.Errorf("--ocsd: %w", err)
	}
	if err := cli.WriteOutput("fabric", f.fabric, text); err != nil || f.ocsd == "" {
		return err
	}
	return cli.WriteOutput("ocsd", f.ocsd, controller)
}

// controller returns the text of the controller file.
func (f *circuitFiles) controller(maps []circuit.Permutation) ([]byte, error) {
	path, err := filepath.Abs(f.fabric)
	if err != nil {
		return nil, err
	}
	o := fabric.OCSD{Version: fabric.Version, Fabric: path, Listen: f.listen, Initial: maps}
	b := o.Encode()
	_, err = fabric.DecodeOCSD(b)
	return b, err
}

// planeFiles are the files of a topology between pods.
type planeFiles struct {
	circuitFiles
	names []string // of the planes; none: port0, port1, ...
}

func (f *planeFiles) register(fl *pflag.FlagSet) {
	f.circuitFiles.register(fl, "fabric file to write: a rank per pod, a plane per port",
		"directory for the map of each plane", jobOwner)
	fl.StringSliceVar(&f.names, "plane-names", nil,
		"names of the planes in these files, as in the fabric file of a cluster (default port0,port1,...)")
}

// jobOwner stands for the name of the job where a job owns circuits.
const jobOwner = "job"

// check is that of circuitFiles.
func (f *planeFiles) check(fl *pflag.FlagSet) error {
	if f.names != nil && f.fabric == "" && f.maps == "" {
		return errors.New("--plane-names needs --fabric or --maps")
	}
	return f.circuitFiles.check(fl)
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
		if f.pinnedBy == jobOwner {
			f.pinnedBy = cmp.Or(g.Name, jobOwner)
		}
		if err := f.circuitFiles.write(file, maps); err != nil {
			return err
		}
	}
	if f.maps == "" {
		return nil
	}
	return writePlaneMaps(f.maps, names, maps)
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
		text, _ := json.Marshal(m) // a list of numbers
		if err := cli.WriteOutput("maps", filepath.Join(dir, names[j]+".json"), append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}
