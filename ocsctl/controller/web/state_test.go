package web

import "testing"

func TestState(t *testing.T) {
	for _, c := range []struct{ before, now, want string }{
		{`{"time":1,"a":1}`, `{"time":2,"a":1}`, ``},
		{`{"time":1,"a":1,"b":[1,2,3]}`, `{"time":2,"a":2,"b":[1,2,3]}`, `{"a":2,"time":2}`},
		{`{"time":1,"b":["one","two","three"]}`, `{"time":2,"b":["one","2","three"]}`, `{"b":{"1":"2"},"time":2}`},
		{`{"time":1,"b":[1]}`, `{"time":2,"b":[1,2]}`, `{"b":[1,2],"time":2}`},
		{`{"time":1,"b":[{"x":1}]}`, `{"time":2}`, `{"b":null,"time":2}`},
		{`{"time":1}`, `{"time":2,"b":null}`, `{"b":null,"time":2}`},
	} {
		changed := decompose([]byte(c.now)).since(decompose([]byte(c.before)))
		got := ""
		if changed != nil {
			got = string(encode("change", changed).data)
		}
		if got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.before, c.now, got, c.want)
		}
	}
}
