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
		root.seen = d.at
		root.see()
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

// errorf returns an error about the value at path. If the file has no such value, its line is that of the value at
// around.
func (d *decoder) errorf(path, around, format string, args ...any) error {
	if v, ok := d.at[path]; ok {
		return v.errorf(format, args...)
	}
	return value{node: d.at[around].node, path: path}.errorf(format, args...)
}

func (d *decoder) fabric(root value) error {
	f := d.f
	return root.read(fields{
		"version":       integer(&f.Version, Version, Version),
		"name":          &f.Name,
		"ranks":         integer(&f.Ranks, 1, plans.MaxRanks),
		"hosts":         listOf(d.host),
		"planes":        listOf(d.plane),
		"ocs":           listOf(d.ocs),
		"costs":         fields{"alpha": &f.Costs.Alpha, "hop": &f.Costs.Hop, "barrier": &f.Costs.Barrier},
		"packet_planes": fields{"bandwidth": &f.Packets.Bandwidth, "alpha": &f.Packets.Alpha},
		"circuits":      (*string)(&f.Circuits),
		"pods": func(v value) error {
			f.Pods = [][]int{}
			return listOf(d.pod)(v)
		},
		"forwarding": &f.Forwarding,
		"pinned_by":  &f.PinnedBy,
		"controller": f.Controller.decode,
	})
}

func (c *Controller) decode(v value) error {
	err := v.read(c.TLS.into().and(fields{"endpoints": texts(&c.Endpoints, value.endpoint)}))
	if err == nil && len(c.Endpoints) == 0 {
		return v.errorf("endpoints: %w", errMissing)
	}
	return err
}

func (t *TLS) into() fields { return fields{"ca": &t.CA, "cert": &t.Cert, "key": &t.Key} }

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
	err := v.read(fields{"name": &h.Name, "ranks": integer(&h.Ranks, 1, plans.MaxRanks), "address": &h.Address})
	d.f.Hosts = append(d.f.Hosts, h)
	return err
}

func (d *decoder) plane(v value) error {
	if len(d.f.Planes) == plans.MaxPlanes {
		return v.errorf("more than %d planes", plans.MaxPlanes)
	}
	var p Plane
	var ports map[int]string
	err := v.read(fields{
		"name": &p.Name, "bandwidth": &p.Bandwidth, "ocs": &p.OCS, "interface": &p.Interface, "hca": &p.HCA,
		"spares": texts(&p.Spares, value.text),
		"ports": func(v value) error {
			ports = make(map[int]string)
			return v.object(func(key string, v value) error {
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
		},
	})
	d.f.Planes = append(d.f.Planes, p)
	d.ports = append(d.ports, ports)
	return err
}

func (d *decoder) ocs(v value) error {
	var o OCS
	err := v.read(fields{
		"name": &o.Name, "driver": &o.Driver, "endpoint": &o.Endpoint, "dialect": &o.Dialect,
		"reconfig": &o.Reconfig, "reconfig_per_port": &o.ReconfigPerPort,
	})
	d.f.OCS = append(d.f.OCS, o)
	return err
}

func (d *decoder) pod(v value) error {
	pod := []int{}
	err := v.list(func(_ int, v value) error {
		var rank int
		err := v.integer(&rank, 0, plans.MaxRanks-1)
		pod = append(pod, rank)
		return err
	})
	d.f.Pods = append(d.f.Pods, pod)
	return err
}
