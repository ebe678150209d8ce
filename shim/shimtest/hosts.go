package shimtest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"lightpath/ocsctl/kernel/kerneltest"
)

// NewHosts makes network namespaces with an IP address on every plane: host i is 10.77.J.(i+1) on plane J. Their frames
// are single segments.
func NewHosts(t *testing.T, n, planes int) ([]string, *kerneltest.Ethernet) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip (Debian package iproute2)")
	}
	hosts, ethernet := kerneltest.Wired(t, n, planes, 1500)
	for i, host := range hosts {
		commands := []string{"link set up dev lo"}
		for j := range planes {
			name := kerneltest.Interface(j)
			commands = append(commands, fmt.Sprintf("addr add 10.77.%d.%d/24 dev %s", j, i+1, name),
				"link set up gso_max_segs 1 dev "+name)
		}
		for _, words := range commands {
			if out, err := exec.Command("ip", append([]string{"-n", host},
				strings.Fields(words)...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", words, err, out)
			}
		}
	}
	return hosts, ethernet
}
