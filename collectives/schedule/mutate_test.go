package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// replay executes s on integers, one per chunk, in the simplest way. It checks only indexes. In a step, all transfers
// read before any writes. It reports whether the result is correct.
func replay(s *Schedule, inPlace bool) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false // an index was out of range
		}
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	mem := make([][NumBuffers][]int64, s.Ranks)
	input := make([][]int64, s.Ranks)
	for r := range mem {
		for b := range NumBuffers {
			mem[r][b] = make([]int64, s.BlocksAt(r, b)*s.Sub)
			for i := range mem[r][b] {
				mem[r][b][i] = rng.Int64()
			}
		}
		input[r] = slices.Clone(mem[r][Input])
		if in, out, blocks := s.InPlace(r); blocks > 0 && inPlace {
			if len(mem[r][Input]) >= len(mem[r][Output]) {
				mem[r][Output] = mem[r][Input][in*s.Sub:][:len(mem[r][Output])]
			} else {
				copy(mem[r][Output][out*s.Sub:], input[r])
				mem[r][Input] = mem[r][Output][out*s.Sub:][:len(input[r])]
			}
		}
	}
	apply := func(moves ...Move) {
		var sent [][]int64
		for _, m := range moves {
			sent = append(sent, slices.Clone(mem[m.Src][m.From.Buf][m.From.Chunk:m.From.Chunk+m.Count]))
		}
		for i, m := range moves {
			dst := mem[m.Dst][m.To.Buf][m.To.Chunk : m.To.Chunk+m.Count]
			for k, v := range sent[i] {
				if m.Reduce {
					v += dst[k]
				}
				dst[k] = v
			}
		}
	}
	for _, m := range s.Pre {
		apply(m)
	}
	for _, st := range s.Steps {
		apply(st.Transfers...)
		for _, m := range st.Post {
			apply(m)
		}
	}
	for _, m := range s.Post {
		apply(m)
	}
	for r := range mem {
		for c, got := range mem[r][Output] {
			from, chunk := s.source(r, c)
			want := int64(0)
			for q := range input {
				if from == q || from < 0 {
					want += input[q][chunk]
				}
			}
			if got != want {
				return false
			}
		}
		if !inPlace && !slices.Equal(input[r], mem[r][Input]) {
			return false
		}
	}
	return true
}

// TestReplayAgrees compares two executions of every schedule: replay on integers, and Verify on symbols.
func TestReplayAgrees(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 8, 13, 16} {
		each(t, n, func(name string, s *Schedule) {
			if !replay(s, false) || !s.Disjoint && !replay(s, true) {
				t.Errorf("%s: wrong numbers", name)
			}
		})
	}
}

// copyOf returns a copy of s that shares no moves with it, and the move lists of the copy.
func copyOf(s *Schedule) (*Schedule, []*[]Move) {
	c := *s
	c.Pre, c.Post, c.Steps = slices.Clone(s.Pre), slices.Clone(s.Post), slices.Clone(s.Steps)
	lists := []*[]Move{&c.Pre, &c.Post}
	for i := range c.Steps {
		st := &c.Steps[i]
		st.Transfers, st.Post = slices.Clone(st.Transfers), slices.Clone(st.Post)
		lists = append(lists, &st.Transfers, &st.Post)
	}
	return &c, lists
}

// mutations change one move. Fatal ones always break a schedule. After the others, a schedule may still be correct, for
// example because another rank has the same data.
var mutations = []struct {
	name  string
	fatal bool
	apply func(s *Schedule, list *[]Move, i int)
}{
	{"drop", true, func(_ *Schedule, l *[]Move, i int) { *l = slices.Delete(*l, i, i+1) }},
	{"flip reduce", true, func(_ *Schedule, l *[]Move, i int) { (*l)[i].Reduce = !(*l)[i].Reduce }},
	{"source chunk", true, func(_ *Schedule, l *[]Move, i int) { (*l)[i].From.Chunk++ }},
	{"source chunk back", true, func(_ *Schedule, l *[]Move, i int) { (*l)[i].From.Chunk-- }},
	{"destination chunk", true, func(_ *Schedule, l *[]Move, i int) { (*l)[i].To.Chunk++ }},
	{"shorten", true, func(_ *Schedule, l *[]Move, i int) { (*l)[i].Count-- }},
	{"write input", true, func(_ *Schedule, l *[]Move, i int) { (*l)[i].To.Buf = Input }},
	{"duplicate", false, func(_ *Schedule, l *[]Move, i int) { *l = slices.Insert(*l, i, (*l)[i]) }},
	{"lengthen", false, func(_ *Schedule, l *[]Move, i int) { (*l)[i].Count++ }},
	{"source rank", false, func(s *Schedule, l *[]Move, i int) { (*l)[i].Src = ((*l)[i].Src + 1) % s.Ranks }},
	{"destination rank", false, func(s *Schedule, l *[]Move, i int) { (*l)[i].Dst = ((*l)[i].Dst + 1) % s.Ranks }},
	{"source buffer", false, func(_ *Schedule, l *[]Move, i int) { next(&(*l)[i].From.Buf) }},
	{"destination buffer", false, func(_ *Schedule, l *[]Move, i int) { next(&(*l)[i].To.Buf) }},
}

func next(b *Buffer) { *b = (*b + 1) % NumBuffers }

// TestVerifyCatchesMutations mutates moves of every schedule: on 2 and 3 ranks all, on more ranks a part of them unless
// long is set. Verify must return an error, unless replay shows that the schedule is still correct.
func TestVerifyCatchesMutations(t *testing.T) {
	caught, harmless := 0, 0
	for n, every := range map[int]int{2: 1, 3: 1, 4: 3, 5: 5, 8: 23} {
		if long {
			every = 1
		}
		each(t, n, func(name string, s *Schedule) {
			_, lists := copyOf(s)
			for k := range lists {
				for i := (n + k) % every; i < len(*lists[k]); i += every {
					for _, mu := range mutations {
						c, l := copyOf(s)
						mu.apply(c, l[k], i)
						switch err := Verify(c); {
						case err != nil:
							caught++
						case mu.fatal:
							t.Fatalf("%s: %s of move %d of list %d (%+v): accepted", name, mu.name, i, k, (*lists[k])[i])
						case !replay(c, false) || !c.Disjoint && !replay(c, true):
							t.Fatalf("%s: %s of move %d of list %d (%+v): accepted, but the result is wrong",
								name, mu.name, i, k, (*lists[k])[i])
						default:
							harmless++
						}
					}
				}
			}
		})
	}
	t.Logf("%d caught, %d harmless", caught, harmless)
	if caught < 10*harmless {
		t.Errorf("%d caught, %d harmless: too many mutations are harmless", caught, harmless)
	}
}
