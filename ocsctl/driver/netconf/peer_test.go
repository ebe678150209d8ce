package netconf_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf"
	"lightpath/ocsctl/driver/netconf/wire"
)

// script is a NETCONF server that says what a test wants: a hello, if not "", and answer's
// bytes for every request, in base 1.0 framing. A test that returns "" stays silent.
type script struct {
	hello  string
	answer func(op, id string) string
}

const end = "]]>]]>"

// goodHello is that of a switch.
func goodHello(more ...string) string {
	return wire.Hello{Capabilities: append([]string{wire.Base10, wire.CapRunning, wire.OpticalNS +
		"?module=optical-switch"}, more...), Session: 4}.Element().String() + end
}

// reply is an answer with content.
func reply(id, content string) string {
	return `<rpc-reply message-id="` + id + `" xmlns="` + wire.BaseNS + `" xmlns:o="` + wire.OpticalNS + `">` + content +
		`</rpc-reply>` + end
}

func rows(pairs string) string {
	return `<data><o:cross-connects>` + pairs + `</o:cross-connects></data>`
}

func pair(in, out int) string {
	return fmt.Sprintf("<o:pair><o:ingress>%d</o:ingress><o:egress>%d</o:egress></o:pair>", in, out)
}

// dial returns one end of a pipe with the script at the other; it works any number of times.
func (s script) dial(context.Context) (io.ReadWriteCloser, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		f := wire.NewFramer(theirs, 1<<20)
		go io.WriteString(theirs, s.hello) //nolint:errcheck // a client may not want it
		if _, err := f.Read(); err != nil {
			return
		}
		for {
			msg, err := f.Read()
			if err != nil {
				return
			}
			rpc, err := wire.Parse(msg)
			if err != nil || len(rpc.Children) != 1 {
				return
			}
			if _, err := io.WriteString(theirs, s.answer(rpc.Children[0].Name.Local, rpc.Attr("", "message-id"))); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

// openScript opens a driver over pipes. Tests call it in a bubble, where waiting takes no time.
func openScript(s script) (driver.Switch, error) {
	o := driver.Target{Endpoint: "script", Ports: labels(4, 4), Timeout: 30 * time.Second}
	return netconf.OpenStream(context.Background(), o, s.dial)
}

// oneLine fails the test where an error is more than an operator wants to read.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if s := err.Error(); strings.ContainsAny(s, "\n\r\x1b") || len(s) > 500 {
		t.Errorf("not one clear line: %q", s)
	}
}

func TestBadHellos(t *testing.T) {
	for name, c := range map[string]struct {
		hello string
		want  error
	}{
		"garbage": {"SSH-2.0 is not NETCONF" + end, driver.ErrProtocol},
		"another": {"<rpc/>" + end, driver.ErrProtocol},
		"no base": {wire.Hello{Capabilities: []string{wire.OpticalNS}, Session: 1}.Element().String() + end,
			driver.ErrProtocol},
		"no session": {wire.Hello{Capabilities: []string{wire.Base10, wire.OpticalNS}}.Element().String() + end,
			driver.ErrProtocol},
		"no module": {wire.Hello{Capabilities: []string{wire.Base10}, Session: 1}.Element().String() + end,
			driver.ErrProtocol},
		"bad session": {strings.Replace(goodHello(), ">4<", ">\x07&#10;four"+strings.Repeat("!", 1000)+"<", 1),
			driver.ErrProtocol},
		"document type": {"<!DOCTYPE hello>" + goodHello(), driver.ErrProtocol},
		"endless":       {strings.Repeat("a", 9<<20), driver.ErrProtocol},
		"silence":       {"", context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sw, err := openScript(script{hello: c.hello})
				if !errors.Is(err, c.want) {
					t.Fatalf("%v, %v; want %v", sw, err, c.want)
				}
				oneLine(t, err)
			})
		})
	}
}

func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(op, id string) string
		want   error
	}{
		"garbage":  {func(string, string) string { return "\x1b[2J%s" + end }, driver.ErrProtocol},
		"no reply": {func(string, string) string { return "<ok/>" + end }, driver.ErrProtocol},
		"another's": {func(string, string) string {
			return reply(strings.Repeat("77\n", 500), "<ok/>")
		}, driver.ErrProtocol},
		"no data": {func(_, id string) string { return reply(id, "<ok/>") }, driver.ErrProtocol},
		"neither": {func(_, id string) string { return reply(id, "") }, driver.ErrProtocol},
		"deep": {func(_, id string) string {
			return reply(id, strings.Repeat("<a>", 1000)+strings.Repeat("</a>", 1000))
		}, driver.ErrProtocol},
		"long names": {func(_, id string) string {
			return reply(id, "<"+strings.Repeat("a", 1<<20)+"></b>")
		}, driver.ErrProtocol},
		"endless": {func(_, id string) string { return strings.Repeat("<a>", 3<<20) }, driver.ErrProtocol},
		"half": {func(_, id string) string {
			return strings.TrimSuffix(reply(id, rows("")), end)
		}, context.DeadlineExceeded},
		"silence": {func(string, string) string { return "" }, context.DeadlineExceeded},
		"port 0": {func(_, id string) string {
			return reply(id, rows(pair(0, 5)))
		}, driver.ErrProtocol},
		"no egress": {func(_, id string) string {
			return reply(id, rows("<o:pair><o:ingress>1</o:ingress></o:pair>"))
		}, driver.ErrProtocol},
		"refusal": {func(_, id string) string {
			return reply(id, `<rpc-error><error-tag>access-denied</error-tag><error-message>no&#10;way`+strings.Repeat("!",
				1000)+`</error-message></rpc-error>`)
		}, driver.ErrRefused},
		"shared egress": {func(_, id string) string {
			return reply(id, rows(pair(1, 5)+pair(2, 5)))
		}, driver.ErrNotMatching},
		"shared ingress": {func(_, id string) string {
			return reply(id, rows(pair(1, 5)+pair(1, 6)))
		}, driver.ErrNotMatching},
		"foreign sharer": {func(_, id string) string {
			return reply(id, rows(pair(1, 5)+pair(99, 5)))
		}, driver.ErrNotMatching},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sw, err := openScript(script{goodHello(), c.answer})
				require.NoError(t, err)
				defer sw.Close() //nolint:errcheck // it returns nil
				m, err := sw.Read(context.Background())
				if !errors.Is(err, c.want) {
					t.Fatalf("%v, %v; want %v", m, err, c.want)
				}
				oneLine(t, err)
			})
		})
	}
}

// TestHealthWithoutData: a switch that refuses a request for two containers answers those for one with ok.
func TestHealthWithoutData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gets := 0
		sw, err := openScript(script{goodHello(), func(op, id string) string {
			if gets++; gets == 1 {
				return reply(id, `<rpc-error><error-tag>unknown-element</error-tag></rpc-error>`)
			}
			return reply(id, "<ok/>")
		}})
		require.NoError(t, err)
		defer sw.Close() //nolint:errcheck // it returns nil
		if h, err := sw.Health(context.Background()); !errors.Is(err, driver.ErrProtocol) {
			t.Errorf("%v, %v", h, err)
		}
	})
}

// TestGarbledAnswerToAnEdit: the switch may have done it, so it is read back; what cannot be
// read back either is unknown.
func TestGarbledAnswerToAnEdit(t *testing.T) { synctest.Test(t, garbledAnswerToAnEdit) }

func garbledAnswerToAnEdit(t *testing.T) {
	for _, good := range []bool{true, false} {
		edited := false
		sw, err := openScript(script{goodHello(), func(op, id string) string {
			switch {
			case op == "edit-config":
				edited = true
				return "<oops" + end
			case op == "get" && edited && !good:
				return ""
			case op == "get" && edited:
				return reply(id, rows("<o:pair><o:ingress>1</o:ingress><o:egress>6</o:egress></o:pair>"))
			case op == "get":
				return reply(id, "<data/>")
			default:
				return reply(id, "<ok/>")
			}
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		report, err := sw.Apply(ctx, driver.Change{Before: dark4, After: []int{1, -1, -1, -1}, Want: driver.ReadBack})
		cancel()
		switch {
		case good && (err != nil || len(report) != 1 || !report[0].Accepted || report[0].Verified != driver.ReadBack):
			t.Errorf("read back: %+v, %v", report, err)
		case !good && !errors.Is(err, driver.ErrUnknownOutcome):
			t.Errorf("not read back: %+v, %v", report, err)
		}
		sw.Close() //nolint:errcheck // it returns nil
	}
}

var dark4 = []int{-1, -1, -1, -1}

// TestLockHeld: another session holds the lock. The change waits for it, but not for ever.
func TestLockHeld(t *testing.T) { synctest.Test(t, lockHeld) }

func lockHeld(t *testing.T) {
	for tag, tries := range map[string]int{"in-use": 3, "lock-denied": 1 << 20} {
		left, edits := tries, 0
		denied := `<rpc-error><error-type>protocol</error-type><error-tag>` + tag +
			`</error-tag><error-severity>error</error-severity></rpc-error>`
		sw, err := openScript(script{goodHello(), func(op, id string) string {
			switch {
			case op == "lock" && left > 0:
				left--
				return reply(id, denied)
			case op == "get" && edits > 0:
				return reply(id, rows("<o:pair><o:ingress>1</o:ingress><o:egress>6</o:egress></o:pair>"))
			case op == "get":
				return reply(id, "<data/>")
			case op == "edit-config":
				edits++
				fallthrough
			default:
				return reply(id, "<ok/>")
			}
		}})
		require.NoError(t, err)
		_, err = sw.Apply(context.Background(), driver.Change{Before: dark4, After: []int{1, -1, -1, -1}})
		if free := tries == 3; free && (err != nil || edits != 1) {
			t.Errorf("the lock came free: %v, %d edits", err, edits)
		} else if !free && (!errors.Is(err, driver.ErrRefused) || edits != 0) {
			t.Errorf("the lock never came free: %v, %d edits", err, edits)
		}
		sw.Close() //nolint:errcheck // it returns nil
	}
}

// TestLateCommit: a commit whose answer is lost acts only after the next session has asked about it.
// Once the lock is free, the driver finds the change and confirms it.
func TestLateCommit(t *testing.T) { synctest.Test(t, lateCommit) }

func lateCommit(t *testing.T) {
	var asked, acted, confirmed bool
	sw, err := openScript(script{goodHello(wire.CapCandidate, wire.CapConfirmed), func(op, id string) string {
		switch {
		case op == "commit" && !asked:
			asked = true
			return ""
		case op == "commit":
			confirmed = acted
		case op == "cancel-commit" && !acted:
			return reply(id, `<rpc-error><error-tag>invalid-value</error-tag></rpc-error>`)
		case op == "lock" && asked:
			acted = true // the lock was free only after that
		case op == "get" && acted:
			return reply(id, rows("<o:pair><o:ingress>1</o:ingress><o:egress>6</o:egress></o:pair>"))
		case op == "get":
			return reply(id, "<data/>")
		}
		return reply(id, "<ok/>")
	}})
	require.NoError(t, err)
	defer sw.Close() //nolint:errcheck // it returns nil
	report, err := sw.Apply(context.Background(), driver.Change{Before: dark4, After: []int{1, -1, -1, -1}})
	if err != nil || !confirmed {
		t.Fatalf("%+v, %v, confirmed: %v", report, err, confirmed)
	}
}

// TestLingeringSession: the answer to a commit is lost, and the switch keeps the locks of the old session for a while.
// The driver confirms the commit as soon as the switch lets it; otherwise the switch would undo a verified change.
func TestLingeringSession(t *testing.T) { synctest.Test(t, lingeringSession) }

func lingeringSession(t *testing.T) {
	for _, waits := range []bool{false, true} { // whether the lock stays taken until the commit is confirmed
		var asked, confirmed bool
		locks := 0
		refusal := func(id, tag string) string {
			return reply(id, `<rpc-error><error-tag>`+tag+`</error-tag></rpc-error>`)
		}
		sw, err := openScript(script{goodHello(wire.CapCandidate, wire.CapConfirmed), func(op, id string) string {
			lingers := asked && locks < 3
			switch {
			case op == "commit" && !asked:
				asked = true
				return ""
			case op == "lock" && asked && !confirmed && (lingers || waits):
				locks++
				return refusal(id, "lock-denied")
			case op == "commit" && lingers:
				return refusal(id, "in-use")
			case op == "commit":
				confirmed = true
			case op == "get" && asked:
				return reply(id, rows(pair(1, 6)))
			case op == "get":
				return reply(id, "<data/>")
			}
			return reply(id, "<ok/>")
		}})
		require.NoError(t, err)
		report, err := sw.Apply(context.Background(), driver.Change{Before: dark4, After: []int{1, -1, -1, -1}})
		if err != nil || !confirmed {
			t.Errorf("lock stays taken: %v: %+v, %v, confirmed: %v", waits, report, err, confirmed)
		}
		sw.Close() //nolint:errcheck // it returns nil
	}
}
