// Command audit compares the messages of a libnccl for tests (peer.c) with the log of an emulated switch. Every message
// must have had its circuit, in both directions, from before its sender or receiver began until it was received.
//
//	audit FRAME-LOG PEER-LOG NETWORK...
//
// The networks are those of the planes, in order.
package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"lightpath/ocsctl/emulator"
	"lightpath/plans/circuit"
)

// message is a line of the peer's log; times are nanoseconds of the monotonic clock.
type message struct {
	plane           int
	src, dst        int
	bytes           int64
	began, received int64
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: audit FRAME-LOG PEER-LOG NETWORK...")
		os.Exit(2)
	}
	messages, switches, err := audit(os.Args[1], os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d messages, %d switches: each message on its circuit\n", messages, switches)
}

func audit(frameLog, peerLog string, networks []string) (messages, switches int, err error) {
	l, err := emulator.ReadLog(frameLog)
	if err != nil {
		return 0, 0, err
	}
	list, err := readMessages(peerLog, networks)
	if err != nil {
		return 0, 0, err
	}
	carried := make([]int, len(networks))
	for _, m := range list {
		carried[m.plane]++
		if !joined(l, &m, m.src, m.dst) || !joined(l, &m, m.dst, m.src) {
			return 0, 0, fmt.Errorf("plane %d: %d bytes from rank %d to rank %d, %d..%d: the circuit was not there all the time",
				m.plane, m.bytes, m.src, m.dst, m.began, m.received)
		}
	}
	if slices.Contains(carried, 0) || len(l.Switches) == 0 {
		return 0, 0, fmt.Errorf("planes carried %v messages, and switched %d times: that proves nothing", carried,
			len(l.Switches))
	}
	return len(list), len(l.Switches), nil
}

// joined reports whether a plane had a message's circuit all the time.
func joined(l *emulator.Log, m *message, src, dst int) bool {
	since := int64(-1)
	to := circuit.Dark
	for i := range l.Switches {
		s := &l.Switches[i]
		if int(s.Plane) != m.plane || s.Map[src] == to {
			continue
		}
		if to == dst && since <= m.began && m.received <= s.Start {
			return true
		}
		to, since = s.Map[src], s.End
	}
	return to == dst && since >= 0 && since <= m.began
}

func readMessages(path string, networks []string) ([]message, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []message
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var m message
		var net string
		var posted, began int64
		if _, err := fmt.Fscan(strings.NewReader(lines.Text()), &net, &m.src, &m.dst, &m.bytes, &posted, &began,
			&m.received); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		if m.plane = slices.Index(networks, net); m.plane < 0 {
			continue // of a call that was passed on
		}
		m.began = min(posted, began)
		list = append(list, m)
	}
	return list, nil
}
