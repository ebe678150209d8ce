package fabric

import (
	"fmt"
	"strconv"
	"strings"

	"lightpath/plans"
)

// Decode reads a fabric file. It returns an error that wraps [ErrFabric] unless the file is consistent. Names are
// unique and known. The ports of every plane are a bijection of the ranks (unique over the planes of a real switch).
// Planes have one rate. Pods are a partition of the ranks. Ranks and hosts agree if both are given.
func Decode(data []byte) (*Fabric, error) {
	d := &decoder{f: &Fabric{Circuits: plans.Simplex}, at: make(map[string]value)}
	root, err := parse(data)
	if err == nil {
		d.at[""] = root
		err = d.fabric(root)
	}
	if err == nil {
		err = d.consistent()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFabric, err)
	}
	return d.f, nil
}

// decoder remembers where each value was, for the checks that come after reading.
type decoder struct {
	f  *Fabric
	at map[string]value
	// ports as the file gives them, by plane and rank.
	ports []map[int]string
}

// errorf reports what is wrong with the value at path, or at the nearest one around it
// where the file has none there.
func (d *decoder) errorf(path, around, format string, args ...any) error {
	if v, ok := d.at[path]; ok {
		return v.errorf(format, args...)
	}
	return value{node: d.at[around].node, path: path}.errorf(format, args...)
}

func (d *decoder) fabric(root value) error {
	f := d.f
	return root.object(func(key string, v value) error {
		d.at[v.path] = v
		switch key {
		case "version":
			return v.integer(&f.Version, Version, Version)
		case "name":
			return v.text(&f.Name)
		case "ranks":
			return v.integer(&f.Ranks, 1, plans.MaxRanks)
		case "hosts":
			return v.list(func(_ int, v value) error { return d.host(v) })
		case "planes":
			return v.list(func(i int, v value) error {
				if i == plans.MaxPlanes {
					return v.errorf("more than %d planes", plans.MaxPlanes)
				}
				return d.plane(v)
			})
		case "ocs":
			return v.list(func(_ int, v value) error { return d.ocs(v) })
		case "costs":
			return v.object(func(key string, v value) error {
				switch key {
				case "alpha":
					return v.duration(&f.Costs.Alpha)
				case "hop":
					return v.duration(&f.Costs.Hop)
				case "barrier":
					return v.duration(&f.Costs.Barrier)
				}
				return errUnknown
			})
		case "circuits":
			var kind string
			err := v.text(&kind)
			f.Circuits = plans.CircuitKind(kind)
			return err
		case "forwarding":
			return v.boolean(&f.Forwarding)
		case "pods":
			f.Pods = [][]int{}
			return v.list(func(_ int, v value) error { return d.pod(v) })
		case "pinned_by":
			return v.text(&f.PinnedBy)
		case "controller":
			return f.Controller.decode(v)
		}
		return errUnknown
	})
}

func (c *Controller) decode(v value) error {
	err := v.object(func(key string, v value) error {
		switch key {
		case "endpoints":
			c.Endpoints = []string{}
			return v.list(func(_ int, v value) error {
				var e string
				err := v.endpoint(&e)
				c.Endpoints = append(c.Endpoints, e)
				return err
			})
		}
		return c.TLS.field(key, v)
	})
	if err == nil && len(c.Endpoints) == 0 {
		return v.errorf("endpoints: %w", errMissing)
	}
	return err
}

// field reads one of the fields of t.
func (t *TLS) field(key string, v value) error {
	switch key {
	case "ca":
		return v.text(&t.CA)
	case "cert":
		return v.text(&t.Cert)
	case "key":
		return v.text(&t.Key)
	}
	return errUnknown
}

// endpoint reads "unix:/path" or "host:port".
func (v value) endpoint(to *string) error {
	if err := v.text(to); err != nil {
		return err
	}
	if path, ok := strings.CutPrefix(*to, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return v.errorf("%q: want unix:/path", *to)
		}
		return nil
	}
	return v.address(to)
}

// address reads "host:port".
func (v value) address(to *string) error {
	if err := v.text(to); err != nil {
		return err
	}
	i := strings.LastIndexByte(*to, ':')
	if i < 0 {
		return v.errorf("%q: want host:port", *to)
	}
	if port, err := strconv.ParseUint((*to)[i+1:], 10, 16); err != nil || strconv.FormatUint(port, 10) != (*to)[i+1:] {
		return v.errorf("%q: want host:port, the port a number up to 65535", *to)
	}
	return nil
}

func (d *decoder) host(v value) error {
	var h Host
	d.at[v.path] = v
	err := v.object(func(key string, v value) error {
		d.at[v.path] = v
		switch key {
		case "name":
			return v.text(&h.Name)
		case "ranks":
			return v.integer(&h.Ranks, 1, plans.MaxRanks)
		case "address":
			return v.text(&h.Address)
		}
		return errUnknown
	})
	d.f.Hosts = append(d.f.Hosts, h)
	return err
}

func (d *decoder) plane(v value) error {
	var p Plane
	var ports map[int]string
	d.at[v.path] = v
	err := v.object(func(key string, v value) error {
		d.at[v.path] = v
		switch key {
		case "name":
			return v.text(&p.Name)
		case "bandwidth":
			return v.rate(&p.Bandwidth)
		case "ocs":
			return v.text(&p.OCS)
		case "ports":
			ports = make(map[int]string)
			return v.object(func(key string, v value) error {
				d.at[v.path] = v
				rank, err := v.key(key)
				if err != nil {
					return err
				}
				if _, twice := ports[rank]; twice { // 1 and 01 are different texts
					return v.errorf("rank %d appears twice", rank)
				}
				var name string
				err = v.text(&name)
				ports[rank] = name
				return err
			})
		case "interface":
			return v.text(&p.Interface)
		case "hca":
			return v.text(&p.HCA)
		}
		return errUnknown
	})
	d.f.Planes = append(d.f.Planes, p)
	d.ports = append(d.ports, ports)
	return err
}

func (d *decoder) ocs(v value) error {
	var o OCS
	d.at[v.path] = v
	err := v.object(func(key string, v value) error {
		d.at[v.path] = v
		switch key {
		case "name":
			return v.text(&o.Name)
		case "driver":
			return v.text(&o.Driver)
		case "endpoint":
			return v.text(&o.Endpoint)
		case "dialect":
			return v.text(&o.Dialect)
		case "reconfig":
			return v.duration(&o.Reconfig)
		case "reconfig_per_port":
			return v.duration(&o.ReconfigPerPort)
		}
		return errUnknown
	})
	d.f.OCS = append(d.f.OCS, o)
	return err
}

func (d *decoder) pod(v value) error {
	d.at[v.path] = v
	pod := []int{}
	err := v.list(func(_ int, v value) error {
		d.at[v.path] = v
		var rank int
		err := v.integer(&rank, 0, plans.MaxRanks-1)
		pod = append(pod, rank)
		return err
	})
	d.f.Pods = append(d.f.Pods, pod)
	return err
}
