package comm_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// soakTime is how long TestSoak runs: seconds, or in `make test-long` as long as
// LIGHTPATH_TEST_LONG says ("1" is thirty minutes).
func soakTime(t *testing.T) time.Duration {
	switch v := os.Getenv("LIGHTPATH_TEST_LONG"); v {
	case "":
		if testing.Short() {
			return 2 * time.Second
		}
		return 8 * time.Second
	case "1":
		return 30 * time.Minute
	default:
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("LIGHTPATH_TEST_LONG: %v", err)
		}
		return d
	}
}

// soakSeed is of the random numbers: LIGHTPATH_TEST_SEED repeats a run, up to what the clock decides.
func soakSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("LIGHTPATH_TEST_SEED"); v != "" {
		if _, err := fmt.Sscan(v, &seed); err != nil {
			t.Fatalf("LIGHTPATH_TEST_SEED: %v", err)
		}
	}
	return seed
}

// TestSoak makes communicators of random size over random planes, one after another. On each, and on its children, it
// runs collectives and messages, alone and in groups, in turn and concurrently, and splits, shrinks and aborts. It
// compares all results with the oracle. Nothing may differ, hang or leak.
func TestSoak(t *testing.T) {
	end := time.Now().Add(soakTime(t))
	seed := soakSeed(t)
	t.Logf("LIGHTPATH_TEST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	before := shimtest.CountResources(t)
	families, deeds := 0, 0
	for ; families == 0 || time.Now().Before(end); families++ {
		transport := []string{"inproc", "shm", "tcp", "circuits", "rdma"}[rng.IntN(5)]
		n := 1 + rng.IntN(8)
		t.Run(fmt.Sprintf("%s/%d", transport, n), func(t *testing.T) {
			soakEnvironment(t, rng, transport, n)
			s := &soak{t: t, rng: rng, worlds: []*branch{{shimtest.NewWorld(t, n), allRanks(n)}}}
			defer func() {
				for _, b := range s.worlds {
					b.Destroy()
				}
			}()
			for steps := 1 + rng.IntN(25); steps > 0 && len(s.worlds) > 0; steps-- {
				if err := s.step(); err != nil {
					t.Fatalf("LIGHTPATH_TEST_SEED=%d, family %d: %v", seed, families, err)
				}
				if time.Now().After(end) {
					break
				}
			}
			deeds += s.deeds
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d families of communicators, %d operations", families, deeds)
	before.Goroutines += 8 // a runtime that breathes
	before.Await(t)
}

// soakEnvironment draws the settings of a family of communicators.
func soakEnvironment(t *testing.T, rng *rand.Rand, transport string, n int) {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	planes := 1 + rng.IntN(3)
	switch transport {
	case "circuits":
		shimtest.UseFastEmulator(t, n, 1+rng.IntN(3))
		t.Setenv("LIGHTPATH_PLANNER", pick("perstep", "harvest", "swot", "auto"))
		t.Setenv("LIGHTPATH_DEMAND", pick("spectra", "plain", "off"))
		t.Setenv("LIGHTPATH_PLAN_INITIAL", pick("free", "current"))
		t.Setenv("LIGHTPATH_PLAN_WAIT", pick("0", "1"))
		t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	case "rdma":
		shimtest.UseRDMA(t, planes, planes)
	default:
		t.Setenv("LIGHTPATH_TRANSPORT", transport)
	}
	t.Setenv("LIGHTPATH_PLANES", fmt.Sprint(planes))
	t.Setenv("LIGHTPATH_TIMEOUT", "40s") // before the test calls it a hang: this error says more
	if rng.IntN(3) == 0 {
		t.Setenv("LIGHTPATH_ALGORITHM", pick("allreduce:ring", "allreduce:double-binary-tree,alltoall:pairwise",
			"broadcast:binomial,allgather:ring"))
	}
}

// branch is a communicator of a soak. Thread i of the test is rank thread[i] of the first
// communicator of its family, whatever its rank here.
type branch struct {
	*shimtest.World
	thread []int // by rank
}

// soak is a family of communicators and what is done with it.
type soak struct {
	t      *testing.T
	rng    *rand.Rand
	worlds []*branch // in use
	deeds  int
}

// step does one random thing.
func (s *soak) step() error {
	i := s.rng.IntN(len(s.worlds))
	b := s.worlds[i]
	switch d := s.rng.IntN(20); {
	case d < 2 && len(s.worlds) < 6:
		return s.split(b)
	case d == 2 && len(s.worlds) < 6 && len(b.Comms) > 1:
		return s.shrink(b, s.others(b), false)
	case d == 3 && len(s.worlds) > 1:
		b.Destroy()
		s.worlds = slices.Delete(s.worlds, i, i+1)
		return nil
	case d == 4 && len(b.Comms) > 1:
		s.worlds = slices.Delete(s.worlds, i, i+1)
		return s.abort(b)
	case d < 9:
		return s.inOneGroup()
	}
	return s.sideBySide()
}

// some draws communicators of the family.
func (s *soak) some() []*branch {
	chosen := slices.Clone(s.worlds)
	s.rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen[:1+s.rng.IntN(min(3, len(chosen)))]
}

// draw makes a few operations on a communicator.
func (s *soak) draw(b *branch) ([]*shimtest.Operation, error) {
	var all []*shimtest.Operation
	for range 1 + s.rng.IntN(4) {
		s.deeds++
		if s.rng.IntN(4) == 0 {
			m := shimtest.RandomMessages(s.rng, len(b.Comms), []int{20, 3000, 20000}[s.rng.IntN(3)])
			all = append(all, m.Prepare(b.World, s.deeds))
			continue
		}
		d, err := randomCase(s.rng, len(b.Comms)).Prepare(b.World, s.rng)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// delays draws how late each thread comes; most come at once.
func (s *soak) delays(n int) []time.Duration {
	late := make([]time.Duration, n)
	if s.rng.IntN(3) == 0 {
		for range 1 + s.rng.IntN(2) {
			late[s.rng.IntN(n)] = time.Duration(s.rng.IntN(4000)) * time.Microsecond
		}
	}
	return late
}

// inOneGroup has every thread make all calls of some communicators as one group: those of one
// communicator in their order, the communicators in any order.
func (s *soak) inOneGroup() error {
	threads := 0
	for _, b := range s.worlds {
		threads = max(threads, 1+slices.Max(b.thread))
	}
	group := make([][]calls.Call, threads)
	var all []*shimtest.Operation
	for _, b := range s.some() {
		deeds, err := s.draw(b)
		if err != nil {
			return err
		}
		all = append(all, deeds...)
		for r, thread := range b.thread {
			var mine []calls.Call
			for _, d := range deeds {
				mine = append(mine, d.Calls[r]...)
			}
			group[thread] = s.shuffle(group[thread], mine)
		}
	}
	late := s.delays(threads)
	for i, err := range shimtest.Concurrently(s.t, threads, func(i int) error {
		time.Sleep(late[i])
		return shim.Run(group[i])
	}) {
		if err != nil {
			return fmt.Errorf("thread %d, one group of %v: %w", i, names(all), err)
		}
	}
	return checkAll(all)
}

// shuffle merges two lists of calls, each in its order.
func (s *soak) shuffle(a, b []calls.Call) []calls.Call {
	out := make([]calls.Call, 0, len(a)+len(b))
	for len(a)+len(b) > 0 {
		if s.rng.IntN(len(a)+len(b)) < len(a) {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// sideBySide has each rank of some communicators, on a goroutine of its own, make the calls of its
// communicator in groups that it draws by itself.
func (s *soak) sideBySide() error {
	var runs []func() error
	var all []*shimtest.Operation
	for _, b := range s.some() {
		deeds, err := s.draw(b)
		if err != nil {
			return err
		}
		all = append(all, deeds...)
		late := s.delays(len(b.Comms))
		for r, groups := range s.cut(deeds, len(b.Comms)) {
			runs = append(runs, func() error {
				time.Sleep(late[r])
				for i, g := range groups {
					if err := shim.Run(g); err != nil {
						return fmt.Errorf("rank %d of %d, group %d: %w", r, len(b.Comms), i, err)
					}
				}
				return nil
			})
		}
	}
	for _, err := range shimtest.Concurrently(s.t, len(runs), func(i int) error { return runs[i]() }) {
		if err != nil {
			return fmt.Errorf("side by side %v: %w", names(all), err)
		}
	}
	return checkAll(all)
}

// cut divides the operations of n ranks into groups. All ranks must divide them alike where there
// are messages beside collectives: a group has its messages after its collectives.
func (s *soak) cut(deeds []*shimtest.Operation, n int) [][][]calls.Call {
	groups := make([][][]calls.Call, n)
	alike := slices.ContainsFunc(deeds, func(d *shimtest.Operation) bool { return d.Messages != deeds[0].Messages })
	for i, d := range deeds {
		every := i == 0 || s.rng.IntN(2) == 0
		for r := range groups {
			if every || !alike && s.rng.IntN(2) == 0 {
				groups[r] = append(groups[r], nil)
			}
			last := &groups[r][len(groups[r])-1]
			*last = append(*last, d.Calls[r]...)
		}
	}
	return groups
}

func names(deeds []*shimtest.Operation) string {
	all := make([]string, len(deeds))
	for i, d := range deeds {
		all[i] = d.Name
	}
	return strings.Join(all, "; ")
}

func checkAll(deeds []*shimtest.Operation) error {
	for _, d := range deeds {
		if err := d.Check(); err != nil {
			return fmt.Errorf("%s, one of %s: %w", d.Name, names(deeds), err)
		}
	}
	return nil
}

// split makes children by random colours and keys; some ranks get none.
func (s *soak) split(b *branch) error {
	n := len(b.Comms)
	color, key := make([]int, n), make([]int, n)
	for r := range n {
		color[r], key[r] = s.rng.IntN(3)-1, s.rng.IntN(n)
	}
	return s.bear(b, allRanks(n), func(r int) membership.Origin {
		return membership.Origin{Parent: b.Comms[r], How: membership.BySplit, Color: color[r], Key: key[r]}
	})
}

// others draws ranks to leave out of a communicator: at least one, not all.
func (s *soak) others(b *branch) []int {
	all := s.rng.Perm(len(b.Comms))
	return all[:1+s.rng.IntN(len(all)-1)]
}

// shrink makes a child without some ranks.
func (s *soak) shrink(b *branch, without []int, abort bool) error {
	left := slices.DeleteFunc(allRanks(len(b.Comms)), func(r int) bool { return slices.Contains(without, r) })
	return s.bear(b, left, func(r int) membership.Origin {
		return membership.Origin{Parent: b.Comms[r], How: membership.ByShrink, Exclude: without, Abort: abort}
	})
}

// bear makes children of b, by the ranks that take part, and adds them to the family.
func (s *soak) bear(b *branch, ranks []int, origin func(rank int) membership.Origin) error {
	children := make([]*shim.Comm, len(ranks))
	for i, err := range shimtest.Concurrently(s.t, len(ranks), func(i int) (err error) {
		children[i], err = shimtest.InitFrom(origin(ranks[i]))
		return err
	}) {
		if err != nil {
			return fmt.Errorf("%v, rank %d: %w", origin(ranks[i]).How, ranks[i], err)
		}
	}
	made := map[uint64]*branch{}
	for i, c := range children {
		if c == nil {
			continue
		}
		if made[c.ID] == nil {
			made[c.ID] = &branch{shimtest.WorldOf(s.t, make([]*shim.Comm, c.Ranks)), make([]int, c.Ranks)}
		}
		made[c.ID].Comms[c.Rank], made[c.ID].thread[c.Rank] = c, b.thread[ranks[i]]
	}
	// In the order of ranks: the random choices must not depend on ids.
	for _, c := range children {
		if c != nil && made[c.ID] != nil {
			s.worlds = append(s.worlds, made[c.ID])
			delete(made, c.ID)
		}
	}
	return nil
}

// abort has one rank abort while the others are in calls that need it. They get its error, and the remaining ranks may
// continue together.
func (s *soak) abort(b *branch) error {
	defer b.Destroy()
	deeds, err := s.draw(b)
	if err != nil {
		return err
	}
	victim := s.rng.IntN(len(b.Comms))
	late := s.delays(len(b.Comms))
	for r, err := range shimtest.Concurrently(s.t, len(b.Comms), func(r int) error {
		time.Sleep(late[r])
		if r == victim {
			return b.Comms[r].Abort()
		}
		for _, d := range deeds {
			if err := shim.Run(d.Calls[r]); err != nil {
				return err
			}
		}
		return nil
	}) {
		// A rank may have had all it needs before.
		if err != nil && (r == victim || !errors.Is(err, errdefs.ErrAborted)) {
			return fmt.Errorf("rank %d, while rank %d aborts in %v: %w", r, victim, names(deeds), err)
		}
	}
	if s.rng.IntN(2) == 0 {
		return nil
	}
	return s.shrink(b, []int{victim}, true)
}

// randomCase draws a call; counts are spread evenly over orders of magnitude.
func randomCase(rng *rand.Rand, n int) shimtest.Collective {
	k := shimtest.RandomCollective(rng, shimtest.OracleKinds[rng.IntN(len(shimtest.OracleKinds))], n,
		int(math.Exp(rng.Float64()*math.Log(100_000)))-rng.IntN(2))
	// Sums of products with random scalars are exact in types with more than a few bits.
	if calls.Kinds[k.Kind].Reduces && (!k.Type.Float() || k.Type.Size() > 1) && rng.IntN(6) == 0 {
		k.Op, k.Scalars = calls.OpPreMulSum, shimtest.Scalars(rng, k.Type, n)
	}
	return k
}

// allRanks returns 0 to n-1.
func allRanks(n int) (ranks []int) {
	for r := range n {
		ranks = append(ranks, r)
	}
	return ranks
}
