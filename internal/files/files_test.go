package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func put(t *testing.T, path string, perm fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte("old"), perm), os.Chmod(path, perm)); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestWriteRegular(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("one"), 0o600); err != nil || content(t, path) != "one" || mode(t, path) != 0o600 {
		t.Errorf("new file: %v, %q, %v", err, content(t, path), mode(t, path))
	}
	put(t, path, 0o640)
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := Write(path, []byte("two"), 0o600); err != nil || content(t, path) != "two" || mode(t, path) != 0o640 {
		t.Errorf("existing file: %v, %q, %v", err, content(t, path), mode(t, path))
	}
	if old, err := io.ReadAll(reader); err != nil || string(old) != "old" {
		t.Errorf("an open reader sees %q, %v", old, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if err := Write(filepath.Join(dir, "absent", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory absent: %v", err)
	}
	if err := Write(dir, nil, 0o600); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("directory: %v", err)
	}
}

func TestWriteKeepsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make files of other users")
	}
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, 0o600)
	if err := os.Chown(path, 1234, 2345); err != nil {
		t.Skip(err)
	}
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 1234 || s.Gid != 2345 {
		t.Errorf("owner %d, group %d", s.Uid, s.Gid)
	}
}

func TestWriteFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "a"), 0o700), os.Mkdir(filepath.Join(dir, "b"), 0o700)); err != nil {
		t.Fatal(err)
	}
	target, link, outer := filepath.Join(dir, "b", "target"), filepath.Join(dir, "a", "link"), filepath.Join(dir, "outer")
	if err := errors.Join(os.Symlink("../b/target", link), os.Symlink(link, outer)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"made", "replaced"} {
		if err := Write(outer, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if content(t, target) != text || mode(t, link)&fs.ModeSymlink == 0 || mode(t, outer)&fs.ModeSymlink == 0 {
			t.Errorf("target %q, links %v and %v", content(t, target), mode(t, link), mode(t, outer))
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if err := Write(loop, nil, 0o600); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("loop: %v", err)
	}
}

func TestWriteFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		text, err := os.ReadFile(fifo)
		if err != nil {
			t.Error(err)
		}
		read <- string(text)
	}()
	err := Write(fifo, []byte("text"), 0o600)
	if got := <-read; err != nil || got != "text" || mode(t, fifo)&fs.ModeNamedPipe == 0 {
		t.Errorf("%v, %q, %v", err, got, mode(t, fifo))
	}
}

// TestWriteStandardStream names the file that standard output is: earlier output stays in it.
func TestWriteStandardStream(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	defer func(old *os.File) { os.Stdout = old }(os.Stdout)
	os.Stdout = out
	for _, text := range []string{"one ", "two "} {
		if _, err := out.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := Write(out.Name(), []byte(strings.ToUpper(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, out.Name()); got != "one ONE two TWO " {
		t.Errorf("standard output has %q", got)
	}
}

// TestWriteDevice writes to a node of its own that is like /dev/null.
func TestWriteDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "null")
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("mknod: %v", err)
	}
	if err := Write(path, []byte("text"), 0o600); err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Error(err) // a file system may be mounted nodev
	}
	if mode(t, path)&fs.ModeCharDevice == 0 {
		t.Errorf("the device has become %v", mode(t, path))
	}
}

func TestReadBound(t *testing.T) {
	for _, device := range []string{"/dev/zero", "/dev/urandom"} {
		if _, err := Read(device, 1000); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), device) ||
			!strings.Contains(err.Error(), "1000 bytes") {
			t.Errorf("%s: %v", device, err)
		}
	}
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, 0o600)
	if data, err := Read(path, 3); err != nil || !bytes.Equal(data, []byte("old")) {
		t.Errorf("at the limit: %q, %v", data, err)
	}
	if _, err := Read(path, 2); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := Read(path+"-absent", 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Read(t.TempDir(), 2); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("directory: %v", err)
	}
}

func TestReadSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for perm, ok := range map[fs.FileMode]bool{
		0o400: true, 0o600: true, 0o640: true, 0o644: false, 0o602: false, 0o601: false,
	} {
		put(t, path, perm)
		data, err := ReadSecret(path)
		if ok && (err != nil || string(data) != "old") {
			t.Errorf("%#o: %q, %v", perm, data, err)
		}
		if !ok && (!errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), "chmod o= "+path)) {
			t.Errorf("%#o: %v", perm, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadSecret("/dev/zero"); !errors.Is(err, ErrExposed) {
		t.Errorf("/dev/zero: %v", err)
	}
}

// TestWriteNamesFile: an error names the file, not a temporary one.
func TestWriteNamesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "file")
	if err := Write(path, nil, 0o600); err == nil || !strings.Contains(err.Error(), path+":") {
		t.Errorf("%v, want %s in it", err, path)
	}
}

// TestCheckWrite compares the answer with what Write then does. CheckWrite changes nothing.
func TestCheckWrite(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	put(t, path("old"), 0o600)
	err := errors.Join(os.Symlink("new", path("link")), os.Symlink("none/new", path("astray")),
		os.Symlink("loop", path("loop")), unix.Mkfifo(path("fifo"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "old", "new", "link", "astray", "loop", "none/new", "old/new"} {
		checked := CheckWrite(path(name))
		if name != "old" && name != "" {
			if _, err := os.Stat(path(name)); err == nil {
				t.Errorf("%q: the check has made a file", name)
			}
		}
		if err := Write(path(name), []byte("old"), 0o600); (err == nil) != (checked == nil) {
			t.Errorf("%q: checked %v, written %v", name, checked, err)
		}
		_ = os.Remove(path("new")) // it exists only after some of the writes
	}
	if err := CheckWrite(path("fifo")); err != nil {
		t.Errorf("a FIFO without a reader: %v", err)
	}
}

// TestNoSpace: an error while the temporary file is written names the file that was asked for.
func TestNoSpace(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	path := filepath.Join(t.TempDir(), "file")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 8, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err := Write(path, []byte("more than eight bytes"), 0o600)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); !ok || pathErr.Path != path {
		t.Errorf("%v, want an error of %s", err, path)
	}
}
