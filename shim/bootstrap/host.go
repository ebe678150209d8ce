package bootstrap

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// ProcessID returns a random number of this process. It differs between processes of different containers, too.
var ProcessID = sync.OnceValue(RandomID)

// PIDNamespace returns the name of this process's PID namespace, in which process numbers are unique; "" if the system
// does not report it.
var PIDNamespace = sync.OnceValue(func() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
})

// HostID returns a name that ranks share if they can share memory: the kernel's boot and the mount of /dev/shm, which
// containers may have of their own.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		// Without a boot id, only ranks of this process count as ranks of this host.
		boot = fmt.Appendf(nil, "%x", ProcessID())
	}
	id := strings.TrimSpace(string(boot))
	var st syscall.Stat_t
	if err := syscall.Stat("/dev/shm", &st); err == nil {
		id += fmt.Sprintf(" %x:%x", st.Dev, st.Ino)
	}
	return id
}
