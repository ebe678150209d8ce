package topology

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrHCA is wrapped by every error of [ParseHCA].
var ErrHCA = errors.New("bad hca")

// maxName is the kernel's limit on the name of an RDMA device, its final zero included.
const maxName = 64

// HCA is an RDMA port in the syntax of one entry of NCCL_IB_HCA and of a plane's hca:
// device[:port[:rail[:plane]]]. Parts that are not given are Unknown.
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
			return HCA{}, fmt.Errorf("%w: %q: %s: %q is no number from %d to 255", ErrHCA, text, field.name, parts[i+1], field.low)
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
