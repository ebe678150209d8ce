package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// replay executes s on integers, in the plainest way and without any check but that of
// indexes: one number per chunk, transfers read before any writes. It reports whether the
// result is right, apart or in place.
func replay(s *Schedule, inPlace bool) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false // an index out of range
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
		if in, out, ok := s.InPlace(r); ok && inPlace {
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

func TestReplayAgrees(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 8, 13, 16} {
		each(t, n, func(name string, s *Schedule) {
			if !replay(s, false) || !s.Disjoint && !replay(s, true) {
				t.Errorf("%s: wrong numbers", name)
			}
		})
	}
}

// copyOf returns a schedule that shares no moves with s, and its move lists.
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

// mutations change one move. The first ones always break a schedule; after the others it
// may happen to be right still (another rank can have the same data).
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
	{"source buffer", false, func(_ *Schedule, l *[]Move, i int) { (*l)[i].From.Buf = ((*l)[i].From.Buf + 1) % NumBuffers }},
	{"destination buffer", false, func(_ *Schedule, l *[]Move, i int) { (*l)[i].To.Buf = ((*l)[i].To.Buf + 1) % NumBuffers }},
}

func TestEveryMutationIsCaught(t *testing.T) {
	caught, harmless := 0, 0
	sizes := []int{2, 3, 4, 5, 8}
	if testing.Short() {
		sizes = sizes[:3]
	}
	for _, n := range sizes {
		each(t, n, func(name string, s *Schedule) {
			_, lists := copyOf(s)
			every := 1 + n/8*3 // of many moves, some
			for k := range lists {
				for i := (n + k) % every; i < len(*lists[k]); i += every {
					for _, mu := range mutations {
						c, l := copyOf(s)
						mu.apply(c, l[k], i)
						switch err := Verify(c); {
						case err != nil:
							caught++
						case mu.fatal:
							t.Fatalf("%s: %s of move %d of list %d (%+v) passes", name, mu.name, i, k, (*lists[k])[i])
						case !replay(c, false) || !c.Disjoint && !replay(c, true):
							t.Fatalf("%s: %s of move %d of list %d (%+v) passes but is wrong", name, mu.name, i, k, (*lists[k])[i])
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
		t.Errorf("%d caught, %d harmless: the mutations test little", caught, harmless)
	}
}
