// Command lightpath-nvml prints the properties of this machine's GPUs as JSON, for lightpath topo. It uses NVIDIA's
// management library. Layer: cgo. It is a separate program because go-nvml needs C and lazy binding, which neither
// the static lightpath nor a preloaded library can have. It finds libnvidia-ml.so.1 at run time, and needs nothing of
// NVIDIA's to build.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func main() {
	report, err := collect(nvml.New())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lightpath-nvml:", err)
		os.Exit(1)
	}
}
