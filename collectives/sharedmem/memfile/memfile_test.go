package memfile

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
)

// file makes a file in memory. The first byte of each page is the page's number.
func file(t *testing.T, pages int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip("memfd_create:", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, int64(pages*Page)))
	for i := range pages {
		if _, err := unix.Pwrite(fd, []byte{byte(i)}, int64(i*Page)); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func TestMap(t *testing.T) {
	for _, pages := range []int{1, 3, hugePage/Page - 1, hugePage / Page, hugePage/Page + 1} {
		fd := file(t, pages+2)
		for _, first := range []int{0, 2} {
			for _, size := range []int{pages * Page, pages*Page - 100} {
				mem, err := Map(Find(fd, int64(first*Page)), int64(size), first == 0)
				require.NoError(t, err)
				for i := range pages {
					if mem[i*Page] != byte(first+i) {
						t.Fatalf("page %d of %d: %d", i, pages, mem[i*Page])
					}
				}
				if first == 0 && size >= hugePage && uintptr(unsafe.Pointer(&mem[0]))%hugePage != 0 {
					t.Error("large pages of the file cannot be mapped as such")
				}
				if first == 0 {
					mem[1] = 77
				}
				Unmap(mem)
				var b [1]byte
				if _, err := unix.Pread(fd, b[:], 1); err != nil || b[0] != 77 {
					t.Errorf("%v, %v", b, err)
				}
			}
		}
	}
	Unmap(nil)
}

// TestLeavesNothing checks that Unmap also releases the space around a mapping.
func TestLeavesNothing(t *testing.T) {
	size := func() uint64 {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip(err)
		}
		return uint64(len(text))
	}
	fd := file(t, hugePage/Page+3)
	round := func() {
		mem, err := Map(Find(fd, 0), hugePage+3*Page-1, false)
		require.NoError(t, err)
		Unmap(mem)
	}
	round()
	before := size()
	for range 1000 {
		round()
	}
	if after := size(); after > before+10*100 {
		t.Errorf("the list of mappings has grown from %d to %d bytes", before, after)
	}
}

func TestMapRefuses(t *testing.T) {
	fd := file(t, 2)
	good := Find(fd, 0)
	for name, c := range map[string]struct {
		place Place
		size  int64
		want  error
	}{
		"nowhere":         {Place{FD: -1}, 1, ErrNowhere},
		"no bytes":        {good, 0, ErrNowhere},
		"within a page":   {Find(fd, 8), 8, ErrNowhere},
		"too long":        {good, 2*Page + 1, ErrChanged},
		"too far":         {Find(fd, 2*Page), 1, ErrChanged},
		"beyond":          {Find(fd, 4*Page), 1, ErrChanged},
		"another file":    {Place{good.PID, int32(file(t, 2)), good.Dev, good.Ino, 0}, 1, ErrChanged},
		"another device":  {Place{good.PID, good.FD, good.Dev + 1, good.Ino, 0}, 1, ErrChanged},
		"no such process": {Place{1 << 30, good.FD, good.Dev, good.Ino, 0}, 1, os.ErrNotExist},
	} {
		if mem, err := Map(c.place, c.size, false); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, mem, err)
		}
	}
	if p := Find(-1, 0); p.FD != -1 {
		t.Error(p)
	}
}
