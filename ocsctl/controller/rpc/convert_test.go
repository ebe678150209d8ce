package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// scribble fills every field of v with something, so that none can be forgotten on the way.
func scribble(r *rand.Rand, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(0, 1+r.Int64N(1<<62))
		return
	case *circuit.Permutation:
		*x = r.Perm(1 + r.IntN(9))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			scribble(r, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		scribble(r, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 8))
		for i := range v.Len() {
			scribble(r, v.Index(i))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", r.Uint64()))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		scribble(r, key)
		scribble(r, value)
		v.SetMapIndex(key, value)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + r.Int64N(1<<31-1))
	case reflect.Uint32:
		v.SetUint(1 + uint64(r.Uint32N(1<<31)))
	case reflect.Uint64:
		v.SetUint(1 + r.Uint64N(1<<63))
	default:
		panic("scribble: " + v.Type().String())
	}
}

// TestRoundTrip: every field of events and snapshots crosses the wire, except those for the journal.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var e controller.Event
		scribble(r, reflect.ValueOf(&e).Elem())
		e.Epochs, e.Cause, e.Desired, e.FailedMove = nil, "", nil, false // not for clients
		got, err := fromEvent(carry(t, toEvent(&e), new(ocspb.Event)))
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%v: %+v, want %+v", err, got, e)
		}
		var s controller.Snapshot
		scribble(r, reflect.ValueOf(&s).Elem())
		for i := range s.Planes {
			s.Planes[i].Cause, s.Planes[i].Waiting = "", ""
		}
		back, err := fromSnapshot(carry(t, toSnapshot(&s), new(ocspb.Snapshot)))
		if err != nil || !reflect.DeepEqual(back, s) {
			t.Fatalf("%v: %+v, want %+v", err, back, s)
		}
		var p ocsctl.PlaneInfo
		p.Name, p.BandwidthBitsPerSec, p.Reconfig, p.ReconfigPerPort = "p", r.Float64(), time.Duration(r.Int64N(1<<40)),
			time.Duration(r.Int64N(1<<40))
		if got := fromPlaneInfo(carry(t, toPlaneInfo(p), new(ocspb.PlaneInfo))); got != p {
			t.Fatalf("%+v, want %+v", got, p)
		}
	}
}

func carry[M proto.Message](t *testing.T, m, into M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// TestFaultTable: every kind of error keeps its kind and its text, as a fault and as a status.
func TestFaultTable(t *testing.T) {
	codes := map[ocspb.FaultCode]bool{}
	for i := range faults {
		f := &faults[i]
		if codes[f.code] {
			t.Errorf("%v stands twice", f.code)
		}
		codes[f.code] = true
		err := fmt.Errorf("plane 3 epoch 9: %w", f.err)
		for _, got := range []error{fromFault(carry(t, toFault(err), new(ocspb.Fault))), fromStatus(toStatus(err))} {
			if !errors.Is(got, f.err) || got.Error() != err.Error() {
				t.Errorf("%v: %v", err, got)
			}
			for j := range faults {
				if j != i && errors.Is(got, faults[j].err) {
					t.Errorf("%v is also %v", got, faults[j].err)
				}
			}
		}
	}
	for code := range ocspb.FaultCode_name {
		if code != 0 && !codes[ocspb.FaultCode(code)] {
			t.Errorf("%v has no error", ocspb.FaultCode(code))
		}
	}
	if toFault(nil) != nil || toStatus(nil) != nil || fromStatus(nil) != nil {
		t.Error("something of nothing")
	}
	long := fromFault(toFault(errors.New(strings.Repeat("x", 1<<20))))
	if len(long.Error()) > maxText+3 {
		t.Errorf("a text of %d bytes", len(long.Error()))
	}
	if !errors.Is(fromStatus(toStatus(context.DeadlineExceeded)), context.DeadlineExceeded) {
		t.Error("a deadline is no deadline any more")
	}
}
