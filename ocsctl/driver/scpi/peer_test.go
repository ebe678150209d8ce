package scpi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/drivertest"
	"lightpath/ocsctl/driver/scpi"
	"lightpath/plans/circuit"
)

// hour bounds what a test waits for.
const hour = 20 * time.Second

func context20(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hour)
	t.Cleanup(cancel)
	return ctx
}

func newDevice(t *testing.T, c device.Config) *device.Device {
	t.Helper()
	d, err := device.New(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func closeAfter(t *testing.T, sw driver.Switch) {
	t.Cleanup(func() {
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
		if _, err := sw.Read(context.Background()); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestWholeMap: with all ports of the switch in the map and nothing that stays, one ONLY; where a
// circuit stays, SUB and ADD of the others.
func TestWholeMap(t *testing.T) {
	d := newDevice(t, device.Config{Ports: 300, Preset: "rotor-20us"}) // more ports than one query may name
	sw := open(t, d, 300, driver.Target{})
	closeAfter(t, sw)
	at := circuit.AllDark(300)
	for _, to := range []circuit.Permutation{circuit.Shift(300, 1), circuit.Shift(300, 7), circuit.AllDark(300),
		circuit.Xor(300, 1)} {
		if verdicts, err := sw.Apply(context20(t), driver.Change{Before: at, After: to, Want: driver.Status}); err != nil {
			t.Fatalf("%v: %+v", err, verdicts)
		}
		if at = d.Map(); !at.Equal(to) {
			t.Fatalf("the switch has %v", at)
		}
	}
}

// say serves one line-oriented peer that answers as the function says; "" hangs up.
func say(t *testing.T, answer func(line string) string) string {
	t.Helper()
	return drivertest.Listen(t, func(conn net.Conn) {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			a := answer(strings.TrimSpace(lines.Text()))
			if a == "" {
				return
			}
			if _, err := io.WriteString(conn, a); err != nil {
				return
			}
		}
	})
}

// TestBadPeers: whatever the other side says, the driver answers with one clear line.
func TestBadPeers(t *testing.T) {
	good := func(line string) string {
		switch {
		case strings.HasPrefix(line, "*IDN?"):
			return "Polatis,N-OST-2x2-LA1,1,6.5\r\n"
		case strings.HasPrefix(line, ":OXC:SWIT:SIZE?"):
			return "2,2\n" // line feed alone will do
		}
		return "(@),(@)\r\n"
	}
	two := driver.Ports{In: []string{"1", "2"}, Out: []string{"3", "4"}}
	for _, c := range []struct {
		name, on, answer, says string
		is                     error
	}{
		{"not SCPI", "*IDN?", "HTTP/1.1 400 Bad Request\r\n", "no identification", driver.ErrProtocol},
		{"endless line", "*IDN?", strings.Repeat("x", 1<<20), "more than", driver.ErrProtocol},
		{"size is words", ":OXC:SWIT:SIZE?", "two,two\r\n", "no size", driver.ErrProtocol},
		{"huge size", ":OXC:SWIT:SIZE?", "60000,60000\r\n", "no size", driver.ErrProtocol},
		{"smaller than the map", ":OXC:SWIT:SIZE?", "1,1\r\n", "has ingress ports 1..1", nil},
		{"hangs up", ":OXC:SWIT:CONN:STAT?", "", "no answer", nil},
		{"no lists", ":OXC:SWIT:CONN:STAT?", "nothing\r\n", "no pair of lists", driver.ErrProtocol},
		{"an empty line before the table", ":OXC:SWIT:CONN:STAT?", "\r\n", "no error queue", driver.ErrProtocol},
		{"unequal lists", ":OXC:SWIT:CONN:STAT?", "(@1,2),(@3)\r\n", "different lengths", driver.ErrProtocol},
		{"endless range", ":OXC:SWIT:CONN:STAT?", "(@1:65535),(@1:65535)\r\n", "no list of ports", driver.ErrProtocol},
		{"twice", ":OXC:SWIT:CONN:STAT?", "(@1,1),(@3,4)\r\n", "second circuit", driver.ErrNotMatching},
		{"ingress to ingress", ":OXC:SWIT:CONN:STAT?", "(@1),(@2)\r\n", "same side", driver.ErrNotMatching},
		{"egress to egress", ":OXC:SWIT:CONN:STAT?", "(@3),(@4)\r\n", "same side", driver.ErrNotMatching},
		{"foreign egress", ":OXC:SWIT:CONN:STAT?", "(@1),(@9)\r\n", "only one of them", driver.ErrNotMatching},
		{"never a line's end", ":OXC:SWIT:CONN:STAT?", "(@),(@)", "no answer", context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			endpoint := say(t, func(line string) string {
				if line == c.on {
					return c.answer
				}
				return good(line)
			})
			patience := hour
			if errors.Is(c.is, context.DeadlineExceeded) {
				patience = time.Second // the rest of the dialogue has to fit
			}
			sw, err := scpi.Open(context20(t), driver.Target{Endpoint: endpoint, Ports: two, Timeout: patience})
			if err == nil {
				closeAfter(t, sw)
				_, err = sw.Read(context20(t))
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") ||
				len(err.Error()) > 300 || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want one line with %q", err, c.says)
			}
		})
	}
	t.Run("an empty table", func(t *testing.T) {
		for queue, says := range map[string]string{`0,"No error"`: "", `-200,"Busy"`: "-200 Busy"} {
			endpoint := say(t, func(line string) string {
				switch line {
				case ":OXC:SWIT:CONN:STAT?":
					return "\r\n"
				case ":SYST:ERR:ALL?":
					return queue + "\r\n"
				}
				return good(line)
			})
			sw, err := scpi.Open(context20(t), driver.Target{Endpoint: endpoint, Ports: two, Timeout: hour})
			require.NoError(t, err)
			p, err := sw.Read(context20(t))
			if says == "" && (err != nil || !p.Equal(circuit.AllDark(2))) ||
				says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
				t.Errorf("%s: %v, %v", queue, p, err)
			}
			closeAfter(t, sw)
		}
	})
	t.Run("both forms of a table", func(t *testing.T) {
		for _, table := range []string{"(@1,2),(@4,3)\r\n", "(@1),(@4);(@2),(@3)\r\n", "(@1:2),(@4,3)\n",
			"(@4),(@1);(@2), (@3)\r\n"} {
			endpoint := say(t, func(line string) string {
				if line == ":OXC:SWIT:CONN:STAT?" {
					return table
				}
				return good(line)
			})
			sw, err := scpi.Open(context20(t), driver.Target{Endpoint: endpoint, Ports: two, Timeout: hour})
			require.NoError(t, err)
			if p, err := sw.Read(context20(t)); err != nil || !p.Equal(circuit.Permutation{1, 0}) {
				t.Errorf("%q reads as %v, %v", table, p, err)
			}
			closeAfter(t, sw)
		}
	})
}

// TestDrip: a peer that sends its answer byte by byte has no more time than one that sends it at once.
func TestDrip(t *testing.T) {
	drip := drivertest.Listen(t, func(conn net.Conn) {
		for _, err := conn.Write([]byte("x")); err == nil; _, err = conn.Write([]byte("x")) {
			time.Sleep(5 * time.Millisecond)
		}
	})
	_, err := scpi.Open(context20(t), driver.Target{Endpoint: drip, Ports: driver.Ports{In: []string{"1"}},
		Timeout: 200 * time.Millisecond})
	if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrProtocol) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// TestAnotherSwitch: a session that is opened again has to be with the same switch.
func TestAnotherSwitch(t *testing.T) {
	var serial atomic.Int64
	endpoint := say(t, func(line string) string {
		switch line {
		case "*IDN?":
			return fmt.Sprintf("Polatis,N-OST-2x2,%d,6.5\r\n", serial.Add(1))
		case ":OXC:SWIT:SIZE?":
			return "2,2\r\n"
		}
		return "" // hangs up
	})
	sw, err := scpi.Open(context20(t), driver.Target{Endpoint: endpoint, Ports: driver.Ports{In: []string{"1", "2"}},
		Timeout: hour})
	require.NoError(t, err)
	closeAfter(t, sw)
	for _, says := range []string{"no answer", "another switch answers", "another switch answers"} {
		if _, err := sw.Read(context20(t)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestUnidentified: a switch that has just started answers *IDN? with other words. Only an identified switch is asked
// for its map.
func TestUnidentified(t *testing.T) {
	idents := make(chan string, 3)
	for _, ident := range []string{"Polatis,N-OST-2x2,1,6.5", "starting", "Polatis,N-OST-2x2,2,6.5"} {
		idents <- ident
	}
	asked := false
	endpoint := say(t, func(line string) string {
		switch {
		case line == "*IDN?":
			return <-idents + "\r\n"
		case line == ":OXC:SWIT:SIZE?":
			return "2,2\r\n"
		case asked:
			return "(@1),(@3)\r\n"
		}
		asked = true
		return "" // hangs up
	})
	sw, err := scpi.Open(context20(t), driver.Target{Endpoint: endpoint, Ports: driver.Ports{In: []string{"1", "2"}},
		Timeout: hour})
	require.NoError(t, err)
	closeAfter(t, sw)
	for _, says := range []string{"no answer", "no identification", "another switch answers"} {
		if p, err := sw.Read(context20(t)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, %v, want %q", p, err, says)
		}
	}
}

// TestSecondAnswer: a switch sends an answer twice. The second one is not taken for the answer to a later line.
func TestSecondAnswer(t *testing.T) {
	switches, reads := make(chan net.Conn, 2), 0
	endpoint := drivertest.Listen(t, func(conn net.Conn) {
		switches <- conn
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			answer := "Polatis,N-OST-2x2,1,6.5\r\n"
			switch lines.Text() {
			case ":OXC:SWIT:SIZE?":
				answer = "2,2\r\n"
			case ":OXC:SWIT:CONN:STAT?":
				answer = fmt.Sprintf("(@1),(@%d)\r\n", 3+reads)
				reads++
			}
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
		}
	})
	var mine *net.TCPConn
	sw, err := scpi.Open(context20(t), driver.Target{Endpoint: endpoint, Ports: driver.Ports{In: []string{"1", "2"}},
		Timeout: hour, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			mine, _ = conn.(*net.TCPConn)
			return conn, err
		}})
	require.NoError(t, err)
	closeAfter(t, sw)
	if p, err := sw.Read(context20(t)); err != nil || p[0] != 0 {
		t.Fatalf("%v, %v", p, err)
	}
	_, err = io.WriteString(<-switches, "(@1),(@3)\r\n")
	require.NoError(t, err)
	raw, err := mine.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Read(func(fd uintptr) bool { // until the second answer is here
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return n > 0 && err == nil
	}))
	if p, err := sw.Read(context20(t)); !errors.Is(err, driver.ErrProtocol) {
		t.Fatalf("%v, %v", p, err)
	}
	if p, err := sw.Read(context20(t)); err != nil || p[0] != 1 {
		t.Fatalf("%v, %v", p, err)
	}
}

func TestRefusedTargets(t *testing.T) {
	two := driver.Ports{In: []string{"1", "2"}, Out: []string{"3", "4"}}
	for _, c := range []struct {
		target driver.Target
		says   string
	}{
		{driver.Target{Endpoint: "192.0.2.1:5025", Ports: two}, "neither encrypted nor authenticated"},
		{driver.Target{Endpoint: "switch.example:5025", Ports: two}, "neither encrypted nor authenticated"},
		{driver.Target{Endpoint: "127.0.0.1", Ports: two}, "not host:port"},
		{driver.Target{Endpoint: "127.0.0.1:1", Ports: two, Dialect: "tl1"}, "no dialect"},
		{driver.Target{Endpoint: "127.0.0.1:1"}, "0 ingress"},
		{driver.Target{Endpoint: "127.0.0.1:1", Ports: driver.Ports{In: []string{"1A"}, Out: []string{"2"}}},
			"not a port number"},
		{driver.Target{Endpoint: "127.0.0.1:1", Ports: driver.Ports{In: []string{"1"}, Out: []string{"1"}}}, "twice"},
	} {
		if _, err := scpi.Open(context20(t), c.target); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.target, err, c.says)
		}
	}
}

// TestServerSyntax talks to the server by hand, as a person with a terminal would.
func TestServerSyntax(t *testing.T) {
	d := newDevice(t, device.Config{Ports: 8, Preset: "rotor-20us"})
	conn, err := net.Dial("tcp", serve(t, d))
	require.NoError(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(hour)) //nolint:errcheck // reads would report it
	r := bufio.NewReader(conn)
	for _, c := range []struct{ send, want string }{
		{"*idn?\n", "Rotor,R-8x8,00000000,6.5.2.18"},
		{":oxc:swit:size?\r\n", "8,8"},
		{":OXC:SWITch:CONNect:ADD (@1,2,3),(@9,10,11);*OPC?\n", "1"},
		{":oxc:swit:conn:stat?\n", "(@1,2,3),(@9,10,11)"},
		{":oxc:swit:conn:only (@4:5), (@9:10); stat?\n", "(@4,5),(@9,10)"},
		{":OXC:SWITCH:CONNECT:PORT? 4;PORT? 9;PORT? 1\n", `"9";"4";""`},
		{":oxc:swit:conn:add (@1),(@9);:syst:err:all?\n", `-221,"Settings conflict;1 to 9: port has another circuit"`},
		{":oxc:swit:conn:add (@1),(@17);sub (@1),(@12);:syst:err?;err?;err?\n",
			`-222,"Data out of range;port 17";-200,"Execution error;1 to 12: no such circuit";0,"No error"`},
		{":oxc:swit:conn:add (@9),(@1);add (@1;add (@99999),(@1);add (@1,2),(@9);:syst:err:all?\n",
			`-222,"Data out of range;ports 9 and 1 are not ingress and egress",-102,"Syntax error",` +
				`-222,"Data out of range",-102,"Syntax error;lists of different lengths"`},
		{":oxc:swit:conn:only (@1,1),(@9,10);:syst:err:all?\n", `-221,"Settings conflict;port 1 twice"`},
		{":oxc:swit:conn:only (@1,2),(@9,9);:syst:err:all?\n",
			`-221,"Settings conflict;no such port: [1]: port 0 already receives from port 0"`},
		{":no:such:thing 1;*CLS;:syst:err:all?\n", `0,"No error"`},
		{":no:such:thing 1;:syst:err:all?\n", `-113,"Undefined header;NO:SUCH:THING"`},
		{":oxc:swit:conn:sub (@4,5),(@);stat?\n", "(@),(@)"},
		{":pmon:pow? (@16)\n", "(-60.00)"},
		{":pmon:pow? (@1);:syst:err:all?\n", `-241,"Hardware missing"`},
		{":pmon:pow? (@1:300);:syst:err:all?\n", `-223,"Too much data"`},
		{":oxc:swit:port:stat? (@1,9)\n", "(E,E)"},
		{":oxc:swit:conn:add (@1),(@9);:oxc:swit:disc:all;:oxc:swit:conn:stat?\n", "(@),(@)"},
	} {
		fmt.Fprint(conn, c.send)
		got, err := r.ReadString('\n')
		if err != nil || got != c.want+"\r\n" {
			t.Errorf("%q: %q, %v; want %q", c.send, got, err, c.want)
		}
	}
	// A line full of queries is answered in part.
	fmt.Fprint(conn, strings.Repeat("*IDN?;", 20000)+"\n:syst:err?\n")
	long, err := r.ReadString('\n')
	if err != nil || len(long) > 70<<10 {
		t.Errorf("an answer of %d bytes, %v", len(long), err)
	}
	if got, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(got, "-223,") {
		t.Errorf("%q, %v", got, err)
	}
	// A line without end ends the session.
	if _, err := io.WriteString(conn, strings.Repeat("x", 200<<10)); err == nil {
		if _, err = r.ReadString('\n'); err == nil {
			t.Error("a line without end was answered")
		}
	}
}
