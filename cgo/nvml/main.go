// Command lightpath-nvml prints what NVIDIA's management library knows of the GPUs of this
// machine, as JSON, for lightpath topo.
//
// Layer: cgo. It is a program of its own because go-nvml needs C and leaves its symbols to lazy
// binding: neither the static lightpath nor a library that others load can carry that. It finds
// libnvidia-ml.so.1 at run time and needs nothing of NVIDIA's to be built.
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
