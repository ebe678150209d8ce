package cache

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/internal/planstest"
	"lightpath/plans/sizes"
)

// size is the bytes of the example's call.
const size = 40e6

func example(t testing.TB) (Key, *plans.Problem, *plans.Plan) {
	t.Helper()
	problem, plan := planstest.Load(t, "swot-fig5")
	key := Key{Collective: "allreduce", Algorithm: "rabenseifner", Ranks: 8, Fabric: Sum([]byte("fabric")),
		FabricName: "f",
		Planes:     3, Planner: "swot", PlannerVersion: 1, TimeLimit: time.Second, Tolerance: .01}
	return key, problem, plan
}

// wide returns the example's pattern for calls of its size to ratio times that.
func wide(t testing.TB, problem *plans.Problem, plan *plans.Plan, ratio int64) *sizes.Span {
	t.Helper()
	big := *problem
	big.Steps = append([]plans.Step(nil), problem.Steps...)
	for i := range big.Steps {
		big.Steps[i].Bytes *= float64(ratio)
	}
	high, err := sizes.Fit(sizes.Sized{Problem: problem, Plan: plan}, &big)
	require.NoError(t, err)
	low, err := sizes.Fit(sizes.Sized{Problem: problem, Plan: plan}, problem)
	require.NoError(t, err)
	return &sizes.Span{Min: size, Max: ratio * size, Low: sizes.Sized{Problem: problem, Plan: low},
		High: sizes.Sized{Problem: &big, Plan: high}}
}

// fileOf is the name of the file of the example's size.
func fileOf(key Key) string { return name(key.family(), size, size) }

func open(t testing.TB, dir string) *Cache {
	t.Helper()
	c, err := Open(dir)
	require.NoError(t, err)
	return c
}

func TestPutAndGet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "plans")
	c := open(t, dir)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v", info, err)
	}
	key, problem, plan := example(t)
	if _, err := c.Get(&key, size); !errors.Is(err, ErrMiss) {
		t.Fatalf("empty cache: %v", err)
	}
	put, err := c.Put(key, sizes.Point(size, problem, plan))
	require.NoError(t, err)
	if plan.Digest != "" {
		t.Error("Put changed the caller's plan")
	}
	if got, err := c.Get(&key, size); err != nil || got != put.Span {
		t.Fatalf("%v %v", got, err)
	}
	got, err := open(t, dir).Get(&key, size) // another process
	require.NoError(t, err)
	if !reflect.DeepEqual(got, put.Span) {
		t.Fatalf("got %+v want %+v", got, put.Span)
	}
	other := key
	other.Planes = 1
	if _, err := c.Get(&other, size); !errors.Is(err, ErrMiss) {
		t.Fatalf("other key: %v", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || files[0].Name() != put.Name() {
		t.Fatalf("%v %v", files, err)
	}
}

func TestPutRefusesInfeasiblePlans(t *testing.T) {
	c := open(t, t.TempDir())
	key, problem, plan := example(t)
	plan.Planes[0][0].Bytes--
	if _, err := c.Put(key, sizes.Point(size, problem, plan)); !errors.Is(err, check.ErrInfeasible) {
		t.Fatal(err)
	}
	if _, err := c.Get(&key, size); !errors.Is(err, ErrMiss) {
		t.Fatalf("a refused plan is there: %v", err)
	}
}

// TestUnusableFilesAreRefused damages the one file of a cache in many ways.
func TestUnusableFilesAreRefused(t *testing.T) {
	key, problem, plan := example(t)
	dir := t.TempDir()
	if _, err := open(t, dir).Put(key, sizes.Point(size, problem, plan)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileOf(key))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	replace := func(old, with string) func() []byte {
		return func() []byte {
			if !bytes.Contains(good, []byte(old)) {
				t.Fatalf("%q is not in the file", old)
			}
			return bytes.Replace(good, []byte(old), []byte(with), 1)
		}
	}
	for name, c := range map[string]struct {
		damage func() []byte
		want   string
	}{
		"empty":         {func() []byte { return nil }, "want an object"},
		"old":           {replace(`"cache":2,`, ``), ErrStale.Error()},
		"newer":         {replace(`"cache":2,`, `"cache":3,`), ErrStale.Error()},
		"other size":    {replace(`"min_bytes":40000000`, `"min_bytes":39999999`), "sizes"},
		"truncated":     {func() []byte { return good[:len(good)/2] }, ErrCorrupt.Error()},
		"zeros":         {func() []byte { return make([]byte, len(good)) }, ErrCorrupt.Error()},
		"changed plan":  {replace(`"start_us":100`, `"start_us":99`), "bad digest"},
		"changed cost":  {replace(`"reconfig_us":200`, `"reconfig_us":100`), "bad digest"},
		"no digest":     {replace(`"digest"`, `"digets"`), "bad digest: missing"},
		"other key":     {replace(`"rabenseifner"`, `"ring"`), "another key"},
		"new key field": {replace(`"collective"`, `"color":1,"collective"`), "key:"},
		"no problem":    {replace(`"problem"`, `"problme"`), ErrCorrupt.Error()},
		"repeated":      {replace(`"planes":[`, `"cct_us":1200,"planes":[`), "appears twice"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, c.damage(), 0o600))
			fresh := open(t, dir)
			e, err := fresh.Get(&key, size)
			if e != nil || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v %v", e, err)
			}
			list, err := fresh.List()
			if err != nil || len(list) != 1 || !errors.Is(list[0].Err, ErrCorrupt) || list[0].Entry != nil {
				t.Fatalf("%+v %v", list, err)
			}
			if _, err := fresh.Put(key, sizes.Point(size, problem, plan)); err != nil { // replaces it
				t.Fatal(err)
			}
			if _, err := open(t, dir).Get(&key, size); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSealedButInfeasibleFileIsRefused(t *testing.T) {
	key, problem, plan := example(t)
	plan.CCTUS = 1
	plan.LowerBoundUS = 0
	require.NoError(t, plans.Seal(problem, plan))
	text, err := (&Entry{Key: key, Span: sizes.Point(size, problem, plan)}).encode()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, fileOf(key)), text, 0o600))
	if _, err := open(t, dir).Get(&key, size); !errors.Is(err, ErrCorrupt) || !errors.Is(err, check.ErrInfeasible) {
		t.Fatal(err)
	}
}

func TestListAndRemove(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	key, problem, plan := example(t)
	second := key
	second.Loop = true
	for _, k := range []Key{key, second} {
		if _, err := c.Put(k, sizes.Point(size, problem, plan)); err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o600))
	list, err := c.List()
	if err != nil || len(list) != 3 {
		t.Fatalf("%v %v", list, err)
	}
	usable := 0
	for _, info := range list {
		if info.Err == nil && info.Entry != nil && info.Bytes > 0 {
			usable++
		}
	}
	if usable != 2 {
		t.Fatalf("%d usable in %+v", usable, list)
	}
	require.NoError(t, c.Remove(fileOf(key)))
	if _, err := c.Get(&key, size); !errors.Is(err, ErrMiss) {
		t.Fatalf("after removal: %v", err)
	}
	for _, name := range []string{fileOf(key), "../x", "..", ""} {
		if err := c.Remove(name); !errors.Is(err, ErrMiss) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	moved := filepath.Join(dir, fileOf(key))
	require.NoError(t, os.Rename(filepath.Join(dir, fileOf(second)), moved))
	if _, err := open(t, dir).Get(&key, size); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a file under another's name: %v", err)
	}
}

func TestStaleTemporariesGo(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"old": 2 * staleTemp, "new": 0} {
		path := filepath.Join(dir, tempPrefix+name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		then := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, then, then))
	}
	list, err := open(t, dir).List()
	if err != nil || len(list) != 0 {
		t.Fatalf("%v %v", list, err)
	}
	files, _ := os.ReadDir(dir)
	if len(files) != 1 || files[0].Name() != tempPrefix+"new" {
		t.Fatalf("%v", files)
	}
}

func TestOpenRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	if _, err := Open(path); err == nil {
		t.Fatal("opened a file")
	}
}

func TestConcurrentWritersAndReaders(t *testing.T) {
	dir := t.TempDir()
	key, problem, plan := example(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := open(t, dir)
			for range 5 {
				if _, err := c.Put(key, sizes.Point(size, problem, plan)); err != nil {
					t.Error(err)
				}
				if _, err := open(t, dir).Get(&key, size); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestFrontIsBounded(t *testing.T) {
	c := open(t, t.TempDir())
	_, problem, plan := example(t)
	for i := range maxFront + 10 {
		c.remember(&Entry{Key: Key{Root: i}, Span: sizes.Point(size, problem, plan)})
	}
	if len(c.front) != maxFront || c.held != maxFront {
		t.Fatalf("%d keys and %d spans in memory", len(c.front), c.held)
	}
}

// TestIntervals: one file serves every size of its interval, across processes too, with the plan
// that the span says; a wider one replaces those within it.
func TestIntervals(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	key, problem, plan := example(t)
	if _, err := c.Put(key, sizes.Point(2*size, problem, plan)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(key, sizes.Point(9*size, problem, plan)); err != nil {
		t.Fatal(err)
	}
	put, err := c.Put(key, wide(t, problem, plan, 4))
	require.NoError(t, err)
	if list, err := c.List(); err != nil || len(list) != 2 {
		t.Fatalf("%d files, %v: want the interval and the size outside it", len(list), err)
	}
	for _, from := range []*Cache{c, open(t, dir)} {
		for bytes, hit := range map[int64]bool{size - 1: false, size: true, 3 * size: true, 4 * size: true,
			4*size + 1: false, 9 * size: true} {
			got, err := from.Get(&key, bytes)
			if (err == nil) != hit || !hit && !errors.Is(err, ErrMiss) {
				t.Fatalf("%d bytes: %v", bytes, err)
			}
			if hit && bytes <= 4*size && !reflect.DeepEqual(got, put.Span) {
				t.Fatalf("%d bytes: another span", bytes)
			}
		}
	}
	// A process that reads the file derives the same plan, bit by bit.
	again, err := open(t, dir).Get(&key, 3*size)
	require.NoError(t, err)
	var digests []string
	for _, s := range []*sizes.Span{put.Span, again} {
		p := s.ProblemAt(3 * size)
		plan, err := s.At(3*size, p)
		require.NoError(t, err)
		digest, err := plans.Digest(p, plan)
		require.NoError(t, err)
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Error("two readers derive different plans")
	}
	mixed := *put.Span
	mixed.High = sizes.Sized{Problem: mixed.High.Problem, Plan: &plans.Plan{}}
	if _, err := c.Put(key, &mixed); err == nil {
		t.Error("took a span whose ends do not belong together")
	}
	// A feasible plan of another pattern: one transmit in two halves.
	split := *put.Span.Low.Plan
	split.Planes = slices.Clone(split.Planes)
	e := split.Planes[0][0]
	first, second := e, e
	first.Bytes, second.Bytes = e.Bytes/2, e.Bytes/2
	first.EndUS, second.StartUS = (e.StartUS+e.EndUS)/2, (e.StartUS+e.EndUS)/2
	split.Planes[0] = append([]plans.Entry{first, second}, split.Planes[0][1:]...)
	mixed = *put.Span
	mixed.Low.Plan = &split
	if _, err := c.Put(key, &mixed); !errors.Is(err, sizes.ErrPattern) {
		t.Errorf("two patterns in one span: %v", err)
	}
	ladder, err := open(t, dir).Ladder(&key)
	if err != nil || len(ladder) != 2 || ladder[0].Min != size || ladder[1].Min != 9*size {
		t.Errorf("ladder %v, %v", ladder, err)
	}
}

func TestHitDoesNotAllocate(t *testing.T) {
	c := open(t, t.TempDir())
	key, problem, plan := example(t)
	if _, err := c.Put(key, sizes.Point(size, problem, plan)); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if e, err := c.Get(&key, size); e == nil || err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestNameDependsOnEveryField(t *testing.T) {
	key, _, _ := example(t)
	seen := map[string]string{fileOf(key): "nothing"}
	v := reflect.ValueOf(&key).Elem()
	for i := range v.NumField() {
		f, saved := v.Field(i), reflect.ValueOf(v.Field(i).Interface())
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Float64:
			f.SetFloat(f.Float() + 1)
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Uint64:
			f.SetUint(f.Uint() + 1)
		case reflect.Array:
			f.Index(0).SetUint(f.Index(0).Uint() ^ 1)
		default:
			f.SetInt(f.Int() + 1)
		}
		field := v.Type().Field(i).Name
		if other, twice := seen[fileOf(key)]; twice {
			t.Errorf("changing %s gives the name of changing %s", field, other)
		}
		seen[fileOf(key)] = field
		f.Set(saved)
	}
}

func FuzzDecode(f *testing.F) {
	key, problem, plan := example(f)
	require.NoError(f, plans.Seal(problem, plan))
	for _, span := range []*sizes.Span{sizes.Point(size, problem, plan), wide(f, problem, plan, 4)} {
		span, err := sealed(span)
		require.NoError(f, err)
		text, err := (&Entry{Key: key, Span: span}).encode()
		require.NoError(f, err)
		if _, err := decodeEntry(text); err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntry(data)
		if err == nil {
			if _, err := e.encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// BenchmarkHit finds a size among many intervals of one key, among many keys.
func BenchmarkHit(b *testing.B) {
	c := open(b, b.TempDir())
	key, problem, plan := example(b)
	for root := range 64 {
		k := key
		k.Root = root
		for i := range int64(32) {
			c.remember(&Entry{Key: k, Span: &sizes.Span{Min: 100 * i, Max: 100*i + 99,
				Low: sizes.Sized{Problem: problem, Plan: plan}}})
		}
	}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		if c.Peek(&key, i%3200) == nil {
			b.Fatal("miss")
		}
	}
}
