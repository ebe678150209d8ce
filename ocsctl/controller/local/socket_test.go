package local

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
)

// TestGroupSocket: with umask 0007 the server serves users of the group and refuses others.
func TestGroupSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be other users")
	}
	dir, err := os.MkdirTemp("", "lightpath-group")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	socket := filepath.Join(dir, "ocs")
	old := unix.Umask(0o007)
	s := startAt(t, socket)
	unix.Umask(old)
	if st, err := os.Stat(socket); err != nil || st.Mode().Perm() != 0o660 || !s.group {
		t.Fatalf("%v, %v", st, err)
	}
	const nobody = 65534
	answer := func(c net.Conn) error {
		defer c.Close()
		_, err := c.Read(make([]byte, 1)) // the server speaks first, or hangs up on what it does not trust
		return err
	}
	for _, who := range []struct {
		gid    int
		served bool
	}{{os.Getgid(), true}, {nobody, false}} {
		c, err := dialAs(nobody, who.gid, socket)
		if err == nil {
			_, err = c.Write([]byte{0, 0, 0, 2, '{', '}'})
			err = errors.Join(err, answer(c))
		}
		if (err == nil) != who.served {
			t.Errorf("group %d: %v", who.gid, err)
		}
	}
}

// dialAs connects as another user, from a thread that is not used again.
func dialAs(uid, gid int, socket string) (net.Conn, error) {
	var c net.Conn
	err := errors.New("not tried")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, uintptr(gid), uintptr(gid),
			uintptr(gid)}, {unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)}} {
			if _, _, e := unix.RawSyscall(call[0], call[1], call[2], call[3]); e != 0 { // this thread alone
				err = e
				return
			}
		}
		c, err = net.Dial("unix", socket)
	}()
	<-done
	return c, err
}
