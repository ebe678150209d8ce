package dag

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
)

func TestCodec(t *testing.T) {
	g := diamond()
	g.Pods[0].Copies = []string{"a", "a2"}
	g.Pods = append(g.Pods, Pod{Name: "i", Image: true})
	g.Links = append(g.Links, Link{Pods: [2]int{0, 3}, Ports: [2]int{2, 0}, Copies: [][2]string{{"a", "a2"}, {"a2", "a"}}})
	got, err := Decode(g.Encode())
	require.NoError(t, err)
	if !reflect.DeepEqual(got, g) {
		t.Errorf("got %+v\nwant %+v", got, g)
	}
}

func TestDecodeRefuses(t *testing.T) {
	const good = `{"version":1,"name":"x","bandwidth_gbps":400,"pods":[{"name":"a","ports":2},{"name":"b","ports":2}],
"links":[{"pods":[0,1]}],
"tasks":[{"name":"w","pod":0,"duration_us":5},
{"name":"t","from":0,"to":1,"flows":1,"bytes":7}],
"deps":[[0,1],[0,1,2.5]]}`
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, now string
		says     []string
	}{
		{`"version":1`, `"version":2`, []string{"version", "2"}},
		{`"version":1,`, ``, []string{"version", "missing"}},
		{`"name":"x",`, `"name":"x","speed":1,`, []string{"speed", "unknown"}},
		{`"name":"x",`, `"name":"x","name":"y",`, []string{"name", "twice"}},
		{`"bandwidth_gbps":400`, `"bandwidth_gbps":"400"`, []string{"bandwidth_gbps", "number"}},
		{`"name":"b","ports":2`, `"name":"b","ports":2.5`, []string{"pods[1].ports", "2.5"}},
		{`"name":"b","ports":2`, `"name":"b","ports":3`, []string{"pods[1].ports", "odd"}},
		{`"name":"b","ports":2`, `"name":"b"`, []string{"pods[1]", "ports", "missing"}},
		{`"pods":[0,1]`, `"pods":[0]`, []string{"links[0].pods", "want 2"}},
		{`"pods":[0,1]`, `"pods":[0,1],"copies":[["a"]]`, []string{"links[0].copies[0]", "want 2"}},
		{`"pods":[0,1]`, ``, []string{"links[0]", "pods", "missing"}},
		{`"duration_us":5`, `"duration_us":-5`, []string{"tasks[0].duration_us", "-5"}},
		{`"duration_us":5`, `"duration_us":1e999`, []string{"tasks[0].duration_us", "finite"}},
		{`,"duration_us":5`, ``, []string{"tasks[0]", "duration_us", "missing"}},
		{`"duration_us":5`, `"duration_us":5,"bytes":1`, []string{"tasks[0]", "from", "missing"}},
		{`"bytes":7`, `"bytes":7,"duration_us":1`, []string{"tasks[1]", "duration_us", "not both"}},
		{`,"bytes":7`, ``, []string{"tasks[1]", "bytes", "missing"}},
		{`"flows":1`, `"flows":0`, []string{"tasks[1].flows", "0"}},
		{`"flows":1`, `"flows":1,"src":[-1]`, []string{"tasks[1].src[0]", "-1"}},
		{`[0,1,2.5]`, `[0,1,-2.5]`, []string{"deps[1].delay_us", "-2.5"}},
		{`[0,1,2.5]`, `[1]`, []string{"deps[1]", "want"}},
		{`[0,1,2.5]`, `[1,0]`, []string{"cycle"}},
		{`[0,1,2.5]]}`, `[0,1,2.5]`, []string{"line 5"}},
		{`[0,1,2.5]]}`, `[0,1,2.5]]}x`, []string{"line 5"}},
	} {
		if strings.Count(good, c.old) != 1 {
			t.Fatalf("%q is not once in the file", c.old)
		}
		_, err := Decode([]byte(strings.Replace(good, c.old, c.now, 1)))
		if !errors.Is(err, ErrGraph) {
			t.Errorf("%s: got %v", c.now, err)
			continue
		}
		assert.Contains(t, err.Error(), c.says...)
	}
}

// FuzzDecode: a graph that Decode accepts is valid, and is equal after writing and reading it again.
func FuzzDecode(f *testing.F) {
	f.Add(diamond().Encode())
	f.Add([]byte(`{"version":1,"bandwidth_gbps":1,"pods":[{"name":"a","ports":0}],"links":[],"tasks":[],"deps":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := Decode(data)
		if err != nil {
			if g != nil || !errors.Is(err, ErrGraph) {
				t.Fatalf("%v with %v", g, err)
			}
			return
		}
		again, err := Decode(g.Encode())
		require.NoError(t, err)
		if !reflect.DeepEqual(again.Encode(), g.Encode()) {
			t.Fatal("not the same when read again")
		}
		small := Reduce(g)
		require.NoError(t, small.Validate())
	})
}
