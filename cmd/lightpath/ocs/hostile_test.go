package ocs

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/ocsctl/driver/drivertest"
)

// TestSwitchThatWritesToTheTerminal: SCPI has no authentication, so any host may be at the other end. Its words reach
// the operator's terminal without control characters.
func TestSwitchThatWritesToTheTerminal(t *testing.T) {
	fabric := clitest.Write(t, "fabric.yaml", fmt.Sprintf(`
version: 1
ranks: 2
planes: [{name: p0, bandwidth: 1Gbps, ocs: sw, ports: {0: "1/3", 1: "2/4"}}]
ocs: [{name: sw, driver: polatis-scpi, endpoint: "%s", reconfig: 1ms}]
`, drivertest.Listen(t, evilSwitch)))
	for _, args := range [][]string{{"status"}, {"set", "--map", "ring:1", "--settle", "10ms"}} {
		o := lightpath.Run(t, "", append(append([]string{"ocs"}, args...), "--plane", "p0", "--fabric", fabric)...)
		if text := o.Stdout + o.Stderr; !strings.Contains(text, "?[2J") || strings.ContainsAny(text, "\x1b\u009b\a") {
			t.Errorf("%v: %q", args, text)
		}
	}
}

// evilSwitch serves one session of a switch whose name and errors clear the screen.
func evilSwitch(conn net.Conn) {
	const clear = "\x1b[2J\u009b2J\a"
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer := ""
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "*IDN?"):
			answer = "Polatis" + clear + ",N-OST,1,6.5"
		case strings.Contains(line, "SIZE?"):
			answer = "2,2"
		case strings.HasPrefix(line, "*CLS"): // a change
			answer = `-200,"` + clear + `"`
		case strings.Contains(line, "CONN:STAT?"):
			answer = "(@),(@)"
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return
		}
	}
}
