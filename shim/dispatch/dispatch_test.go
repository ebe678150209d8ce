package dispatch

import (
	"testing"

	"lightpath/shim/calls"
)

// TestTable checks that Get returns the entry of its key, also after the entry used last has been dropped or replaced.
func TestTable(t *testing.T) {
	key := func(n int, shares uint32) Key { return Key{Shape: calls.Shape{Count: uint64(n)}, Shares: shares} }
	var p Table
	want := func(k Key, e *Entry) {
		t.Helper()
		if got := p.Get(k); got != e {
			t.Errorf("entry %p for count %d and shares %d, want %p", got, k.Count, k.Shares, e)
		}
	}
	want(Key{}, nil)
	even, uneven := new(Entry), new(Entry)
	p.Put(key(1, 0), even)
	p.Put(key(1, 3), uneven)
	for range 2 {
		want(key(1, 3), uneven)
		want(key(1, 0), even)
		want(key(2, 0), nil)
	}
	replaced := new(Entry)
	p.Put(key(1, 0), replaced)
	want(key(1, 0), replaced)
	want(key(1, 3), uneven)
	p.DropShares(3)
	want(key(1, 3), nil)
	want(key(1, 0), replaced)
}

// TestTableDropsTheOldest fills the table while one entry stays in use.
func TestTableDropsTheOldest(t *testing.T) {
	var p Table
	used, other := Key{Plan: 1}, Key{Plan: 2}
	p.Put(used, new(Entry))
	p.Put(other, new(Entry))
	for n := range uint64(MaxPrograms) {
		p.Get(used)
		p.Get(used)
		p.Put(Key{Plan: 3 + n}, new(Entry))
	}
	if len(p.Programs) != MaxPrograms || p.Get(used) == nil || p.Get(other) != nil {
		t.Errorf("%d entries, the used one %p, the unused one %p", len(p.Programs), p.Get(used), p.Get(other))
	}
}
