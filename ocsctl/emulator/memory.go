package emulator

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl/shmring"
)

// memory is an anonymous file that two processes map. Its size is sealed: neither side can
// shrink it under the other, which would turn a read into SIGBUS.
type memory struct {
	fd    int
	bytes []byte
}

// newMemory makes size zeroed bytes, mapped here.
func newMemory(name string, size int) (*memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("emulator: shared memory %s: %w", name, err)
	}
	m := &memory{fd: fd}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		m.close()
		return nil, fmt.Errorf("emulator: shared memory %s, %d bytes: %w", name, size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		m.close()
		return nil, fmt.Errorf("emulator: seal shared memory %s: %w", name, err)
	}
	if m.bytes, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		m.close()
		return nil, fmt.Errorf("emulator: map shared memory %s: %w", name, err)
	}
	return m, nil
}

// sealWrites refuses every further writable mapping; ours stays. Kernels before 5.1 lack
// the seal; there the receivers are trusted to map read-only.
func (m *memory) sealWrites() error {
	_, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("emulator: seal shared memory: %w", err)
	}
	return nil
}

// adoptMemory maps size bytes of a file received from the other process and owns fd.
func adoptMemory(fd, size, prot int) (*memory, error) {
	m := &memory{fd: fd}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		m.close()
		return nil, fmt.Errorf("emulator: received memory: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	switch {
	case err != nil:
		m.close()
		return nil, fmt.Errorf("emulator: received memory: seals: %w", err)
	case seals&unix.F_SEAL_SHRINK == 0 || st.Size < int64(size):
		m.close()
		return nil, fmt.Errorf("emulator: received memory: %d bytes with seals %#x, want %d sealed against shrinking", st.Size, seals, size)
	}
	if m.bytes, err = unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED); err != nil {
		m.close()
		return nil, fmt.Errorf("emulator: map received memory: %w", err)
	}
	return m, nil
}

// closeFile closes the file and keeps the mapping.
func (m *memory) closeFile() {
	if m != nil && m.fd >= 0 {
		_ = unix.Close(m.fd)
		m.fd = -1
	}
}

// close unmaps; nothing may view the memory any more. Idempotent.
func (m *memory) close() {
	if m == nil {
		return
	}
	m.closeFile()
	if m.bytes != nil {
		_ = unix.Munmap(m.bytes)
		m.bytes = nil
	}
}

// Bell is a doorbell in memory of its own that can be handed to a switch: one Bell per
// rank wakes it for whatever it waits for.
type Bell struct {
	*shmring.Doorbell
	mem *memory
}

// NewBell makes a doorbell. The caller closes it after every client that was given it.
func NewBell() (*Bell, error) {
	mem, err := newMemory("lightpath-bell", shmring.DoorbellSize)
	if err != nil {
		return nil, err
	}
	door, err := shmring.NewDoorbell(mem.bytes)
	if err != nil {
		mem.close()
		return nil, err
	}
	return &Bell{door, mem}, nil
}

// Close releases the memory; no Wait or Ring may be in progress.
func (b *Bell) Close() { b.mem.close() }
