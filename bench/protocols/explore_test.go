package protocols

import (
	"testing"
	"time"

	"lightpath/plans/circuit"
)

func TestExploreLeases(t *testing.T) {
	explore(t, smallConfig{ports: 2, planes: 1, start: circuit.AllDark(2),
		comms: []smallComm{{[]int{0, 1}, -1, 1}, {[]int{0, 1}, -1, 1}}}, Limits{})
}

func explore(t *testing.T, cfg smallConfig, l Limits) {
	t.Helper()
	start := func() (Space, error) { return newSmall(cfg) }
	began := time.Now()
	x, err := Explore(start, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d runs, at most %d steps, complete %v, %v", x.States, x.Runs, x.Depth, x.Complete, time.Since(began))
	if x.Error != nil {
		if err := x.Name(start); err != nil {
			t.Error(err)
		}
		for i, s := range x.Trace {
			t.Log(i, s)
		}
		t.Fatal(x.Error)
	}
}
