package lumos

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/circuit"
)

// replay makes the steps. It returns the largest share of a leaf's links that are dark during a step. It
// counts circuits that the step moves, and circuits that an earlier step removed and a later step makes. If
// pods i and j have more links than circuits that stay, any of their links may be dark.
func replay(
	t *testing.T, from, to *Configuration, run *Logical, steps []Step, iota float64,
) (worst []float64, beyond bool) {
	t.Helper()
	f := from.Fabric
	state := from.Clone()
	moved := map[[2]int]bool{}
	for _, s := range steps {
		next := state.Clone()
		for _, m := range s.Moves {
			if moved[[2]int{m.Group, m.Pair}] {
				t.Fatalf("pair %d of group %d moves twice", m.Pair, m.Group)
			}
			moved[[2]int{m.Group, m.Pair}] = true
			next.Even[m.Group][m.Pair] = m.Even
		}
		lost, lostIn := make([]int, f.Leaves()), make([][]int, f.Leaves()) // groups in which
		total := make([]int, f.Leaves())
		for h := range f.Spines() {
			stay := count(f, func(k, i int) int {
				if state.Even[h][k][i] == next.Even[h][k][i] {
					return state.Even[h][k][i]
				}
				return circuit.Dark
			})
			now := count(f, func(k, i int) int { return state.Even[h][k][i] })
			first := count(f, func(k, i int) int { return from.Even[h][k][i] })
			last := count(f, func(k, i int) int { return to.Even[h][k][i] })
			share := run.Share[h]
			pods := make([][]int, f.Pods)
			for i := range pods {
				pods[i] = make([]int, f.Pods)
			}
			for a := range share.Size() {
				for _, cell := range share.Row(a) {
					pods[a/f.leavesPerPod()][cell.Col/f.leavesPerPod()] += cell.Count
					total[a] += cell.Count
				}
			}
			for a := range share.Size() {
				for j := range f.Pods {
					links, i := 0, a/f.leavesPerPod()
					for _, cell := range share.Row(a) {
						if cell.Col/f.leavesPerPod() == j {
							links += cell.Count
						}
					}
					dark := max(0, min(pods[i][j], now[i][j])-stay[i][j])
					dark += max(0, min(pods[i][j], first[i][j], last[i][j])-now[i][j])
					if dark > 0 && links > 0 {
						lost[a] += min(links, dark)
						if !slices.Contains(lostIn[a], h) {
							lostIn[a] = append(lostIn[a], h)
						}
					}
				}
			}
		}
		share := 0.0
		for a := range lost {
			if lost[a] == 0 {
				continue
			}
			part := float64(lost[a]) / float64(total[a])
			if share = max(share, part); part <= iota*(1+1e-9) {
				continue
			}
			beyond = true
			if pairs := pairsOf(s, lostIn[a][0]); len(lostIn[a]) > 1 || pairs != 1 {
				t.Fatalf("%+v: leaf %d loses %v, at most %v, by groups %v, %d pairs of the first", f, a, part, iota, lostIn[a],
					pairs)
			}
		}
		worst = append(worst, share)
		state = next
	}
	for h := range to.Even {
		for k := range to.Even[h] {
			if !state.Even[h][k].Equal(to.Even[h][k]) {
				t.Fatalf("pair %d of group %d ends as %v, want %v", k, h, state.Even[h][k], to.Even[h][k])
			}
		}
	}
	return worst, beyond
}

// count counts the circuits of pairs of pods, both ways; to is where pair k leads from a pod.
func count(f Fabric, to func(k, i int) int) [][]int {
	n := make([][]int, f.Pods)
	for i := range n {
		n[i] = make([]int, f.Pods)
	}
	for k := range f.Pairs() {
		for i := range n {
			if j := to(k, i); j != circuit.Dark {
				n[i][j]++
				n[j][i]++
			}
		}
	}
	return n
}

// pairsOf counts the moves of a group.
func pairsOf(s Step, group int) int {
	n := 0
	for _, m := range s.Moves {
		if m.Group == group {
			n++
		}
	}
	return n
}

func TestSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	exceeded, many, merged := 0, 0, 0
	for round := range 150 {
		f := randomFabric(rng, 1+round%2)
		core, err := NewCore(f)
		require.NoError(t, err)
		r := randomRequirement(t, rng, f, f.KLeaf, rng.IntN(f.Leaves()*f.KLeaf+1))
		for range 4 {
			if _, err := core.Update(r, true); err != nil {
				t.Fatal(err)
			}
			from, old := core.Configuration(), core.Logical()
			next := r.Clone()
			for range rng.IntN(8) { // jobs end
				a, b := rng.IntN(f.Leaves()), rng.IntN(f.Leaves())
				if n := next.At(a, b); n > 0 {
					require.NoError(t, next.Add(a, b, -n))
				}
			}
			for range rng.IntN(8) { // others begin
				a, b := rng.IntN(f.Leaves()), rng.IntN(f.Leaves())
				if f.Pod(a) != f.Pod(b) {
					_ = next.Add(a, b, 1) // or there is no room
				}
			}
			if rng.IntN(4) == 0 { // as bad as it gets: all is planned anew
				if core, err = CoreFor(next); err != nil {
					t.Fatal(err)
				}
			} else if _, err := core.Update(next, rng.IntN(2) == 0); err != nil {
				t.Fatal(err)
			}
			to, run, iota := core.Configuration(), old.Continuing(next), 0.1+0.9*rng.Float64()
			steps, err := Steps(from, to, run, iota)
			require.NoError(t, err)
			groups := map[int]bool{}
			all, beyond := replay(t, from, to, run, steps, iota)
			if beyond {
				exceeded++
			}
			for s, worst := range all {
				for _, m := range steps[s].Moves {
					groups[m.Group] = true
				}
				if worst != steps[s].Affected {
					t.Fatalf("%+v: step %d affects %v of a leaf, and says %v", f, s, worst, steps[s].Affected)
				}
			}
			if len(steps) > 1 {
				many++
			}
			if len(steps) < len(groups) {
				merged++
			}
			r = next
		}
	}
	if exceeded == 0 || many == 0 || merged == 0 {
		t.Fatalf("%d steps exceeded iota, %d plans had several steps, %d merged groups: too few to judge", exceeded, many,
			merged)
	}
}

func TestStepsRefused(t *testing.T) {
	c, l := NewConfiguration(small), newLogical(small)
	for _, iota := range []float64{0, -1, 1.5, nan()} {
		if _, err := Steps(c, c, l, iota); !errors.Is(err, ErrInput) {
			t.Errorf("iota %v: %v", iota, err)
		}
	}
	other := small
	other.Pods = 2
	if _, err := Steps(c, NewConfiguration(other), l, 0.5); !errors.Is(err, ErrInput) {
		t.Errorf("another fabric: %v", err)
	}
	if steps, err := Steps(c, c, l, 0.5); err != nil || len(steps) != 0 {
		t.Errorf("nothing to do: %v, %v", steps, err)
	}
}

func nan() float64 { var zero float64; return zero / zero }
