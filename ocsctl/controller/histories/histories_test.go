package histories

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestHistories checks that the answers of controllers are linearizable.
func TestHistories(t *testing.T) {
	seeds := uint64(12)
	if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
		seeds = 500
	}
	total := 0
	for seed := range seeds {
		w := newWorld(t, seed)
		w.run(4, 60)
		total += len(w.ops)
		if why := check(w); why != "" {
			t.Errorf("seed %d: %s", seed, why)
		}
	}
	t.Logf("%d operations of %d seeds", total, seeds)
}

// TestFaults checks histories in which the journal often has one kind of fault. In all of them, and in TestHistories,
// each rule ends with a lost lease: the journal refuses the writes of a controller that still answers.
func TestFaults(t *testing.T) {
	for name, faults := range map[string]troubles{
		"partition":                {cut: 100},
		"slow writes":              {slow: 10},
		"refused writes":           {refuse: 15},
		"lost answers":             {silent: 15},
		"lost acknowledged writes": {lose: 70},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := 0
			// Goroutines decide what a journal loses, so a few seeds may find nothing.
			for seed := uint64(0); seed < 4 || faults.lose > 0 && found == 0 && seed < 100; seed++ {
				w := newWorld(t, 100+seed)
				w.disk.faults = faults
				w.run(4, 60)
				found += int(w.behind.Load())
				if why := check(w); why != "" {
					t.Errorf("seed %d: %s", w.seed, why)
				}
			}
			if faults.lose > 0 && found == 0 {
				t.Error("no plane went out of service because ranks knew more than the journal")
			}
		})
	}
}

// check returns "" if a history is linearizable. Otherwise it draws the history and says where no order explains it.
func check(w *world) string {
	m, all := rules{w.config.Forgive}.model(), w.history()
	result, info := porcupine.CheckOperationsVerbose(m, all, patience)
	if result == porcupine.Ok {
		return ""
	}
	path := filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("history-%d.html", w.seed))
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		w.t.Error(err)
	}
	text := fmt.Sprintf("linearizable: %v, drawn in %s", result, path)
	for plane, longest := range info.PartialLinearizationsOperations() {
		text += explain(m, m.Partition(all)[plane], longest)
	}
	return text
}

// explain returns the end of the longest order that the rules allow, and the operations that might have been next.
func explain(m porcupine.Model, all []porcupine.Operation, orders [][]porcupine.Operation) string {
	longest := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return cmp.Compare(len(a), len(b)) })
	if len(longest) == len(all) {
		return ""
	}
	var text strings.Builder
	s := m.Init()
	for i, o := range longest {
		_, s = m.Step(s, o.Input, o.Output)
		if i >= len(longest)-8 {
			fmt.Fprintf(&text, "\n  %d..%d client %d %s\n\t-> %s", o.Call, o.Return, o.ClientId,
				m.DescribeOperation(o.Input, o.Output), m.DescribeState(s))
		}
	}
	left := slices.DeleteFunc(slices.Clone(all), func(o porcupine.Operation) bool {
		return slices.ContainsFunc(longest, func(x porcupine.Operation) bool {
			return x.Call == o.Call && x.ClientId == o.ClientId
		})
	})
	first := slices.MinFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	text.WriteString("\n  none of these can be next:")
	for _, o := range left {
		if o.Call <= first.Return {
			fmt.Fprintf(&text, "\n  %d..%d client %d %s", o.Call, o.Return, o.ClientId, m.DescribeOperation(o.Input, o.Output))
		}
	}
	return text.String()
}
