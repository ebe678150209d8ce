package msccl_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/internal/require"
)

// files calls f for every file of msccl-tools.
func files(t *testing.T, f func(t *testing.T, text []byte)) {
	paths, err := filepath.Glob("testdata/*.xml")
	if err != nil || len(paths) < 12 {
		t.Fatalf("%d files: %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(path), ".xml"), func(t *testing.T) { f(t, text) })
	}
}

// collectiveOf returns a file as the algorithm of its collective. The name of the test names the collective of a custom
// file.
func collectiveOf(t *testing.T, f *msccl.File) *msccl.File {
	t.Helper()
	if !f.Custom {
		return f
	}
	_, name := filepath.Split(t.Name())
	name, _, _ = strings.Cut(name, "-")
	c, err := schedule.ParseCollective(name)
	require.NoError(t, err)
	g, err := f.As(c)
	require.NoError(t, err)
	return g
}

func decode(t *testing.T, text []byte) *msccl.File {
	t.Helper()
	f, err := msccl.Decode(text)
	require.NoError(t, err)
	return f
}

// runs checks the results of a file in the interpreter, with several interleavings.
func runs(t *testing.T, text []byte, c schedule.Collective, root, slots int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(len(text))))
	for range 2 {
		in, out, err := interpret(text, c, root, slots, rng)
		if err == nil {
			err = wrong(c, root, in, out)
		}
		require.NoError(t, err)
	}
}

// steps are the numbers of steps of the schedules of msccl-tools' files, known from the algorithms.
var steps = map[string]int{
	"allgather-allpairs-4": 1, "allgather-doubling-8": 3, "allgather-doubling-4-2inst": 2, "allgather-ring-5-2inst": 4,
	"allgather-ring-3-apart": 2, "allreduce-1step-4": 1, "allreduce-allpairs-4": 2, "allreduce-halving-8": 6,
	"allreduce-ring-3": 4, "allreduce-ring-4-2chan-2inst": 6, "allreduce-tree-4-2inst": 4, "allreduce-trees-8": 6,
	"alltoall-allpairs-3-2inst": 1, "reducescatter-ring-4": 3,
	"allgather-ring-4-solved": 3, "broadcast-ring-4-solved": 2, "reduce-line-3-solved": 2,
}

// racy is a file for which some orders of steps give wrong results. The instances of msccl-tools interleave chunks,
// which is correct only for steps of one chunk. The importer chooses a correct order.
const racy = "allgather-doubling-4-2inst"

// TestImport checks that the files of msccl-tools run in the interpreter. Their schedules are proven, deterministic and
// have the right number of steps. Exports of these schedules run in the interpreter, too.
func TestImport(t *testing.T) {
	files(t, func(t *testing.T, text []byte) {
		f := collectiveOf(t, decode(t, text))
		_, name := filepath.Split(t.Name())
		if name != racy {
			runs(t, text, f.Collective, 0, 8)
		}
		for _, opts := range [][]schedule.Option{nil, {schedule.Disjoint}} {
			s, err := f.Schedule(0, opts...)
			require.NoError(t, err)
			require.NoError(t, schedule.Verify(s))
			if again, err := f.Schedule(0, opts...); err != nil || !reflect.DeepEqual(s, again) {
				t.Fatalf("a second schedule differs: %v", err)
			}
			if want, ok := steps[name]; ok && len(s.Steps) != want {
				t.Errorf("%d steps, want %d", len(s.Steps), want)
			}
			for i := range s.Steps {
				if len(s.Steps[i].Transfers) == 0 && i > 0 {
					t.Errorf("step %d sends nothing", i)
				}
			}
			out, err := msccl.Export(s, false)
			require.NoError(t, err)
			runs(t, msccl.Encode(out), f.Collective, 0, 1)
		}
	})
}

// TestDisjointReadsInput checks that a Disjoint schedule does not copy input that it only sends.
func TestDisjointReadsInput(t *testing.T) {
	text, err := os.ReadFile("testdata/alltoall-twostep-2x3.xml")
	require.NoError(t, err)
	s, err := decode(t, text).Schedule(0, schedule.Disjoint)
	require.NoError(t, err)
	for _, m := range s.Pre {
		if m.To.Buf == schedule.Scratch && m.From.Chunk != m.Src && m.Src/3 == m.From.Chunk/3 {
			t.Errorf("%+v loads input that is only sent", m)
		}
	}
	both, err := decode(t, text).Schedule(0)
	require.NoError(t, err)
	if len(both.Pre) <= len(s.Pre) {
		t.Errorf("%d loads without Disjoint, %d with it", len(both.Pre), len(s.Pre))
	}
}

// TestEncodeDecode decodes, encodes and decodes the files of msccl-tools.
func TestEncodeDecode(t *testing.T) {
	files(t, func(t *testing.T, text []byte) {
		f := decode(t, text)
		again := decode(t, msccl.Encode(f))
		if !reflect.DeepEqual(f, again) {
			t.Error("the file changed")
		}
	})
}

// algorithms calls f for all algorithms of package schedule on n ranks.
func algorithms(t *testing.T, n int, f func(t *testing.T, s *schedule.Schedule)) {
	for c := range schedule.NumCollectives {
		for _, a := range schedule.Algorithms(c) {
			if !schedule.Defined(c, a, n) {
				continue
			}
			s, err := schedule.Build(c, a, n, n/2)
			if err != nil {
				t.Fatalf("%v %s: %v", c, a, err)
			}
			t.Run(fmt.Sprintf("%v/%s/%d", c, a, n), func(t *testing.T) { f(t, s) })
		}
	}
}

// TestExport checks that exported algorithms run in the interpreter with one slot per connection, in place and with
// separate buffers. Reading them again gives schedules with at most as many steps.
func TestExport(t *testing.T) {
	sizes := []int{1, 2, 3, 5}
	if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
		sizes = append(sizes, 6, 8)
	}
	for _, n := range sizes {
		algorithms(t, n, func(t *testing.T, s *schedule.Schedule) {
			for _, inPlace := range []bool{false, true} {
				f, err := msccl.Export(s, inPlace)
				require.NoError(t, err)
				text := msccl.Encode(f)
				runs(t, text, s.Collective, s.Root, 1)
				back, err := decode(t, text).Schedule(s.Root)
				if err != nil {
					t.Fatalf("in place %v: %v\n%s", inPlace, err, text)
				}
				if got, want := sending(back), sending(s); got > want {
					t.Errorf("in place %v: %d steps, want at most %d; flows %v and %v", inPlace, got, want, flows(back), flows(s))
				}
			}
		})
	}
}

// sending returns the number of steps with transfers.
func sending(s *schedule.Schedule) (n int) {
	for i := range s.Steps {
		if len(s.Steps[i].Transfers) > 0 {
			n++
		}
	}
	return n
}

func flows(s *schedule.Schedule) string {
	var all []int
	for i := range s.Steps {
		all = append(all, len(s.Flows(i)))
	}
	return fmt.Sprint(all)
}

// TestExportKeepsOrder checks that reading an exported algorithm gives the same order of combinations.
func TestExportKeepsOrder(t *testing.T) {
	for _, n := range []int{3, 4, 6} {
		algorithms(t, n, func(t *testing.T, s *schedule.Schedule) {
			if !s.Collective.Reduces() {
				return
			}
			f, err := msccl.Export(s, true)
			require.NoError(t, err)
			back, err := f.Schedule(s.Root)
			require.NoError(t, err)
			want, err := schedule.Orders(s)
			require.NoError(t, err)
			got, err := schedule.Orders(back)
			require.NoError(t, err)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("orders %v, want %v", got, want)
			}
		})
	}
}

// TestExportOfLargeMoves checks that no step has more than MaxCount chunks.
func TestExportOfLargeMoves(t *testing.T) {
	s, err := schedule.Build(schedule.AllGather, "recursive-doubling-xor", 256, 0)
	require.NoError(t, err)
	f, err := msccl.Export(s, true)
	require.NoError(t, err)
	most := 0
	for g := range f.GPUs {
		for b := range f.GPUs[g].Blocks {
			for _, st := range f.GPUs[g].Blocks[b].Steps {
				most = max(most, st.Count)
			}
		}
	}
	if most != msccl.MaxCount {
		t.Errorf("the largest step has %d chunks, want %d", most, msccl.MaxCount)
	}
	if back, err := f.Schedule(0); err != nil || len(back.Steps) != len(s.Steps) {
		t.Errorf("%v", err)
	}
}

func TestBuild(t *testing.T) {
	const path = "testdata/allreduce-halving-8.xml"
	s, err := msccl.Build(schedule.AllReduce, msccl.Prefix+path, 8, 0)
	if err != nil || s.Ranks != 8 {
		t.Fatalf("%+v: %v", s, err)
	}
	if s, err := msccl.Build(schedule.AllReduce, "ring", 5, 0); err != nil || s.Ranks != 5 {
		t.Fatalf("%+v: %v", s, err)
	}
	for _, tc := range []struct {
		c    schedule.Collective
		name string
		n    int
		want string // "" for none
	}{
		{schedule.AllReduce, msccl.Prefix + path, 8, ""},
		{schedule.AllReduce, "ring", 4, ""},
		{schedule.AllGather, msccl.Prefix + path, 8, "coll"},
		{schedule.AllReduce, msccl.Prefix + path, 4, "ngpus"},
		{schedule.AllReduce, msccl.Prefix + "testdata/none.xml", 4, "no such file"},
		{schedule.AllReduce, msccl.Prefix + "testdata/README.md", 4, "README.md: msccl: bad file"},
		{schedule.AllReduce, "nothing", 4, "no such algorithm"},
	} {
		err := msccl.Check(tc.c, tc.name, tc.n)
		_, other := msccl.Build(tc.c, tc.name, tc.n, 0)
		if fmt.Sprint(err) != fmt.Sprint(other) {
			t.Errorf("%s: Check returns %v, Build %v", tc.name, err, other)
		}
		if (err == nil) != (tc.want == "") || !strings.Contains(fmt.Sprint(err), tc.want) ||
			strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("%v %s on %d ranks: %v, want %q", tc.c, tc.name, tc.n, err, tc.want)
		}
	}
}

// TestIdentity checks that Identity depends on the algorithm and not on white space.
func TestIdentity(t *testing.T) {
	seen := map[string]string{}
	files(t, func(t *testing.T, text []byte) {
		f := decode(t, text)
		id := f.Identity()
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the same identity", t.Name(), other)
		}
		seen[id] = t.Name()
		spaced := bytes.ReplaceAll(text, []byte("<tb"), []byte("\n<!-- one -->\t<tb"))
		if got := decode(t, spaced).Identity(); got != id {
			t.Errorf("identity %s, with other white space %s", id, got)
		}
		f.GPUs[0].Blocks[0].Chan++
		if f.Identity() == id {
			t.Errorf("identity %s does not depend on the channel", id)
		}
		f.Name = "a name\nof \"two\" lines, which is longer than the limit for names in an identity"
		if id := f.Identity(); strings.ContainsAny(id, " \n\"") || len(id) > 80 {
			t.Errorf("%q", id)
		}
	})
}

// TestDisjointKeepsTransfers checks that schedules with and without Disjoint send the same parts in the same steps, so
// that ranks with in-place calls can communicate with other ranks.
func TestDisjointKeepsTransfers(t *testing.T) {
	wire := func(s *schedule.Schedule) string {
		var out strings.Builder
		for i := range s.Steps {
			for _, f := range s.Flows(i) {
				fmt.Fprintf(&out, "step %d: %d -> %d:", i, f.Src, f.Dst)
				for _, m := range f.Moves {
					for k := range m.Count {
						fmt.Fprintf(&out, " %d", (m.From.Chunk+k)%s.Sub)
					}
				}
				fmt.Fprintln(&out)
			}
		}
		return out.String()
	}
	files(t, func(t *testing.T, text []byte) {
		f := collectiveOf(t, decode(t, text))
		one, err := f.Schedule(0)
		require.NoError(t, err)
		two, err := f.Schedule(0, schedule.Disjoint)
		require.NoError(t, err)
		if wire(one) != wire(two) {
			t.Errorf("without Disjoint:\n%swith Disjoint:\n%s", wire(one), wire(two))
		}
	})
}
