package ocsctl

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// PlaneInfo describes a plane to the clients of its controller.
type PlaneInfo struct {
	Name                string        `json:"name"`
	BandwidthBitsPerSec float64       `json:"bandwidth_bits_per_sec"`
	Reconfig            time.Duration `json:"reconfig_ns"`
	ReconfigPerPort     time.Duration `json:"reconfig_per_port_ns"`
}

// The data planes of a controller.
const (
	DataMemory = "memory" // circuits in the controller's memory
	DataKernel = "kernel" // circuits in the kernel
	DataNone   = "none"   // real planes; the controller only moves their switches
)

// ErrVersion means that two ends are of versions that do not work together.
var ErrVersion = errors.New("version mismatch")

// CheckVersions returns an error if a rank's library and its controller cannot work together. Releases that differ only
// in the last part can, and an end without a version is not checked. The error wraps ErrVersion and names both.
func CheckVersions(library, controller string) error {
	if library == "" || controller == "" || series(library) == series(controller) {
		return nil
	}
	return fmt.Errorf("the library is version %s, the controller %s: %w", library, controller, ErrVersion)
}

// series returns a version without its last part: 0.1 for 0.1.7.
func series(version string) string {
	if i := strings.LastIndexByte(version, '.'); i >= 0 {
		return version[:i]
	}
	return version
}
