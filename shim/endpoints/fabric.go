package endpoints

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"lightpath/plans/fabric"
	"lightpath/shim/bootstrap"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// Fabric is the fabric file of this process; nil if there is none, or if it has no circuits.
type Fabric struct {
	*fabric.Fabric
	Path      string
	endpoints []string // of the controller of its planes
}

// remote lists the endpoints that are not on this host.
func (f *Fabric) remote() []string {
	return slices.DeleteFunc(slices.Clone(f.endpoints), func(e string) bool { return strings.HasPrefix(e, "unix:") })
}

// Digest identifies the fabric, so that ranks with different files refuse each other.
func (f *Fabric) Digest() string {
	if f == nil {
		return ""
	}
	return f.Fabric.Digest()
}

// LoadFabric reads LIGHTPATH_FABRIC. An unusable file is an error even if no collective would need it.
func LoadFabric(cfg *settings.Config) (*Fabric, error) {
	if cfg.Fabric == "" {
		return nil, nil
	}
	fab, err := fabric.Load(cfg.Fabric)
	if err != nil {
		return nil, fmt.Errorf("shim: environment variable LIGHTPATH_FABRIC: %w: %w", err, errdefs.ErrInvalidUsage)
	}
	if !fab.Optical() {
		return nil, nil
	}
	f := &Fabric{Fabric: fab, Path: cfg.Fabric, endpoints: fab.Endpoints()}
	if fab.Controller.Endpoints == nil {
		if err := f.oneSwitch(); err != nil {
			return nil, err
		}
	}
	return f, f.present()
}

// Pin makes communicators use the circuits of a pinned fabric as they are: plans neither begin with a reconfiguration
// nor have any.
func (f *Fabric) Pin(cfg *settings.Config) error {
	if f == nil || f.PinnedBy == "" {
		return nil
	}
	if cfg.Plan.Planner != "auto" && cfg.Plan.Planner != settings.PlannerStatic {
		return fmt.Errorf("shim: environment variable LIGHTPATH_PLANNER: %s may move circuits, "+
			"and those of fabric %s are pinned by %s: want %s: %w", cfg.Plan.Planner, f.Path, f.PinnedBy, settings.PlannerStatic,
			errdefs.ErrInvalidUsage)
	}
	cfg.Plan.Planner, cfg.Plan.Current = settings.PlannerStatic, true
	return nil
}

// oneSwitch checks that a fabric which names no controller has one emulated switch, which then is the controller.
func (f *Fabric) oneSwitch() error {
	for j := range f.Planes {
		switch sw := f.Switch(j); {
		case sw.Driver != fabric.DriverEmulator:
			return fmt.Errorf("shim: fabric %s: plane %s: a switch with driver %s is moved by a controller, and the file "+
				"names none (controller: endpoints): %w",
				f.Path, f.Fabric.Planes[j].Name, sw.Driver, errdefs.ErrInvalidUsage)
		case len(f.endpoints) == 0 || sw.Endpoint != f.endpoints[0]:
			return fmt.Errorf("shim: fabric %s: plane %s: endpoint %q: every plane needs the one socket of the emulator: %w",
				f.Path, f.Fabric.Planes[j].Name, sw.Endpoint, errdefs.ErrInvalidUsage)
		}
	}
	return nil
}

// present returns an error if no controller can exist: all endpoints are sockets of this host, and none of them exists.
func (f *Fabric) present() error {
	var missing error
	for _, e := range f.endpoints {
		socket, local := strings.CutPrefix(e, "unix:")
		if !local {
			return nil
		}
		_, err := os.Stat(socket)
		if err == nil {
			return nil
		}
		missing = fmt.Errorf("shim: fabric %s: no switch at %s; is `lightpath ocsd` running? %w", f.Path, socket, err)
	}
	return missing
}

// AssignPorts returns the port of every rank: LIGHTPATH_FABRIC_RANK if it is set, else the launcher's rank if it is
// usable on all other ranks, else the rank in the communicator. It is a pure function of the table.
func AssignPorts(table []bootstrap.Hello, fabricRanks int) ([]int, error) {
	ports := make([]int, len(table))
	launched := !slices.ContainsFunc(table, func(h bootstrap.Hello) bool {
		return !h.PortGiven && (h.Port < 0 || h.Port >= fabricRanks)
	})
	if launched && slices.ContainsFunc(table, func(h bootstrap.Hello) bool { return !h.PortGiven }) {
		// Ranks of one process share the launcher's variable, so it names none of them.
		seen := map[int]bool{}
		for i := range table {
			launched = launched && !seen[table[i].Port]
			seen[table[i].Port] = true
		}
	}
	owner := make([]int, fabricRanks)
	for i := range owner {
		owner[i] = -1
	}
	for i := range table {
		h := &table[i]
		ports[i] = i
		if h.PortGiven || launched {
			ports[i] = h.Port
		}
		if ports[i] >= fabricRanks {
			return nil, fmt.Errorf("shim: %s has port %d on a fabric of %d ranks (LIGHTPATH_FABRIC_RANK): %w", h.Where(),
				ports[i], fabricRanks, errdefs.ErrInvalidUsage)
		}
		if o := owner[ports[i]]; o >= 0 {
			return nil, fmt.Errorf("shim: %s and %s have the same port %d (LIGHTPATH_FABRIC_RANK): %w", table[o].Where(),
				h.Where(), ports[i], errdefs.ErrInvalidUsage)
		}
		owner[ports[i]] = i
	}
	return ports, nil
}
