package topology

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrHCA is wrapped by every error of [ParseHCA].
var ErrHCA = errors.New("bad hca")

// maxName is the kernel's limit on the name of an RDMA device, its final zero included.
const maxName = 64

// HCA is an RDMA port in the syntax of one entry of NCCL_IB_HCA and of a plane's hca:
// device[:port[:rail[:plane]]]. Missing parts are Unknown.
type HCA struct {
	Device            string
	Port, Rail, Plane int
}

// ParseHCA reads an entry: "mlx5_0", "mlx5_0:1", "mlx5_0:1:0:3". Ports count from 1, rails and
// planes from 0.
func ParseHCA(text string) (HCA, error) {
	h := HCA{Port: Unknown, Rail: Unknown, Plane: Unknown}
	parts := strings.Split(text, ":")
	h.Device = parts[0]
	valid := func(c rune) bool { return c > ' ' && c < 0x7f && !strings.ContainsRune("/,^=", c) }
	switch {
	case h.Device == "":
		return HCA{}, fmt.Errorf("%w: %q: no device: want device[:port[:rail[:plane]]]", ErrHCA, text)
	case len(h.Device) >= maxName || strings.TrimFunc(h.Device, valid) != "":
		return HCA{}, fmt.Errorf("%w: %q is no name of an RDMA device", ErrHCA, h.Device)
	case len(parts) > 4:
		return HCA{}, fmt.Errorf("%w: %q: more than device:port:rail:plane", ErrHCA, text)
	}
	for i, field := range []struct {
		name string
		at   *int
		low  uint64
	}{{"port", &h.Port, 1}, {"rail", &h.Rail, 0}, {"plane", &h.Plane, 0}} {
		if i+1 >= len(parts) {
			break
		}
		v, err := strconv.ParseUint(parts[i+1], 10, 8)
		if err != nil || v < field.low {
			return HCA{}, fmt.Errorf("%w: %q: %s: %q is no number from %d to 255", ErrHCA, text, field.name,
				parts[i+1], field.low)
		}
		*field.at = int(v)
	}
	return h, nil
}

// String writes h so that [ParseHCA] reads the same.
func (h HCA) String() string {
	text := h.Device
	for _, v := range []int{h.Port, h.Rail, h.Plane} {
		if v == Unknown {
			break
		}
		text += ":" + strconv.Itoa(v)
	}
	return text
}

// HCAs is the value of NCCL_IB_HCA: entries whose devices are prefixes of names, or whole names after "=". After "^",
// it lists devices to exclude. The zero value means every device.
type HCAs struct {
	Entries        []HCA
	Exact, Exclude bool
}

// ParseHCAs reads a list: "mlx5", "=mlx5_0:1,mlx5_1:1", "^mlx5_3", "mlx5_0:1:0:0,mlx5_1:1:0:1".
func ParseHCAs(text string) (HCAs, error) {
	var l HCAs
	rest := text
	for {
		if cut, ok := strings.CutPrefix(rest, "^"); ok && !l.Exclude {
			l.Exclude, rest = true, cut
		} else if cut, ok := strings.CutPrefix(rest, "="); ok && !l.Exact {
			l.Exact, rest = true, cut
		} else {
			break
		}
	}
	if rest == "" && text != "" {
		return HCAs{}, fmt.Errorf("%w: %q names no device", ErrHCA, text)
	}
	planes := 0
	for item := range strings.SplitSeq(rest, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		h, err := ParseHCA(item)
		if err != nil {
			return HCAs{}, err
		}
		if h.Plane != Unknown {
			planes++
		}
		l.Entries = append(l.Entries, h)
	}
	switch {
	case planes > 0 && l.Exclude:
		return HCAs{}, fmt.Errorf("%w: %q: what is excluded has no plane", ErrHCA, text)
	case planes > 0 && planes < len(l.Entries):
		return HCAs{}, fmt.Errorf("%w: %q: some entries name their plane and others do not", ErrHCA, text)
	}
	return l, nil
}

// Select returns the ports that the list selects from devices with these names. They are in the order of the entries
// or, if the entries exclude devices, of the names. An entry without a port selects port 1.
func (l HCAs) Select(names []string) []HCA {
	var chosen []HCA
	take := func(h HCA, name string) {
		h.Device = name
		if h.Port == Unknown {
			h.Port = 1
		}
		if !slices.Contains(chosen, h) {
			chosen = append(chosen, h)
		}
	}
	if l.Exclude || len(l.Entries) == 0 {
		for _, name := range names {
			if !slices.ContainsFunc(l.Entries, func(h HCA) bool { return l.names(h, name) }) {
				take(HCA{Port: Unknown, Rail: Unknown, Plane: Unknown}, name)
			}
		}
		return chosen
	}
	for _, h := range l.Entries {
		for _, name := range names {
			if l.names(h, name) {
				take(h, name)
			}
		}
	}
	return chosen
}

// names reports whether an entry selects a device.
func (l HCAs) names(h HCA, device string) bool {
	return h.Device == device || !l.Exact && strings.HasPrefix(device, h.Device)
}

// OnPlanes assigns ports to planes, and returns the port that a rank uses on each. Ports that name a plane belong to
// it; others are assigned in turn. If a plane has several ports, the ranks of a host use them in turn, by local rank.
// The error names the first plane without a port.
func OnPlanes(ports []HCA, planes, local int) ([]HCA, error) {
	used := make([]HCA, planes)
	for j := range used {
		var here []HCA
		for i, h := range ports {
			if h.Plane == j || h.Plane == Unknown && (i%planes == j || len(ports) <= j && i == j%len(ports)) {
				here = append(here, h)
			}
		}
		if len(here) == 0 {
			return nil, fmt.Errorf("%w: plane %d has no port", ErrHCA, j)
		}
		slices.SortStableFunc(here, func(a, b HCA) int { return a.Rail - b.Rail })
		used[j] = here[local%len(here)]
	}
	return used, nil
}
