package protocols

import (
	"testing"
	"time"

	"lightpath/plans/circuit"
)

func TestExplore(t *testing.T) {
	two := []smallComm{{[]int{0, 1}, -1, 1}, {[]int{0, 1}, -1, 1}}
	for name, cfg := range map[string]smallConfig{
		"two":        {ports: 2, planes: 1, start: circuit.AllDark(2), comms: two},
		"crash1":     {ports: 2, planes: 1, start: circuit.AllDark(2), comms: two[:1], crash: true},
		"loop1":      {ports: 2, planes: 1, start: circuit.AllDark(2), comms: []smallComm{{[]int{0, 1}, -1, 3}}},
		"busy":       {ports: 2, planes: 1, start: circuit.AllDark(2), busy: true, comms: []smallComm{{[]int{0, 1}, -1, 2}, {[]int{0, 1}, -1, 1}}},
		"vacate":     {ports: 3, planes: 1, start: circuit.Shift(3, 1), comms: []smallComm{{[]int{0, 1, 2}, -1, 0}, {[]int{0, 1}, 0, 1}}},
		"vacate1":    {ports: 3, planes: 1, start: circuit.Shift(3, 1), comms: []smallComm{{[]int{0, 1, 2}, -1, 1}, {[]int{0, 1}, 0, 1}}},
		"planes":     {ports: 2, planes: 2, start: circuit.AllDark(2), comms: two[:1]},
		"crash-busy": {ports: 2, planes: 1, start: circuit.AllDark(2), comms: []smallComm{{[]int{0, 1}, -1, 2}}, crash: true, busy: true},
		"crash-loop": {ports: 2, planes: 1, start: circuit.AllDark(2), comms: []smallComm{{[]int{0, 1}, -1, 2}}, crash: true},
		"crash2":     {ports: 2, planes: 1, start: circuit.AllDark(2), comms: two, crash: true},
	} {
		t.Run(name, func(t *testing.T) { explore(t, cfg, Limits{States: 60000}) })
	}
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
