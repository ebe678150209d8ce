package shmring

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Memory is an anonymous file that two processes map. Its size is sealed, so neither process can shrink it. Reads
// beyond the end of a shrunk file would fail with SIGBUS.
type Memory struct {
	fd    int
	Bytes []byte // the mapping; nil after Close
}

// NewMemory creates and maps size zero bytes. The name appears in /proc/PID/maps.
func NewMemory(name string, size int) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shmring: shared memory %s: %w", name, err)
	}
	m := &Memory{fd: fd}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		m.Close()
		return nil, fmt.Errorf("shmring: shared memory %s, %d bytes: %w", name, size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		m.Close()
		return nil, fmt.Errorf("shmring: seal shared memory %s: %w", name, err)
	}
	if m.Bytes, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		m.Close()
		return nil, fmt.Errorf("shmring: map shared memory %s: %w", name, err)
	}
	return m, nil
}

// SealWrites forbids further writable mappings; the existing mapping stays writable. Kernels before 5.1 lack
// the seal; there SealWrites does nothing and the other process must map read-only by itself.
func (m *Memory) SealWrites() error {
	_, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("shmring: seal shared memory: %w", err)
	}
	return nil
}

// File returns the file descriptor, which m still owns; -1 after CloseFile.
func (m *Memory) File() int { return m.fd }

// AdoptMemory maps size bytes of a file received from another process. It takes ownership of fd, also on failure.
func AdoptMemory(fd, size, prot int) (*Memory, error) {
	m := &Memory{fd: fd}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		m.Close()
		return nil, fmt.Errorf("shmring: received memory: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	switch {
	case err != nil:
		m.Close()
		return nil, fmt.Errorf("shmring: received memory: seals: %w", err)
	case seals&unix.F_SEAL_SHRINK == 0 || st.Size < int64(size):
		m.Close()
		return nil, fmt.Errorf("shmring: received memory: %d bytes with seals %#x, want %d sealed against shrinking",
			st.Size, seals, size)
	}
	if m.Bytes, err = unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED); err != nil {
		m.Close()
		return nil, fmt.Errorf("shmring: map received memory: %w", err)
	}
	return m, nil
}

// CloseFile closes the file and keeps the mapping.
func (m *Memory) CloseFile() {
	if m != nil && m.fd >= 0 {
		_ = unix.Close(m.fd)
		m.fd = -1
	}
}

// Close unmaps the memory and closes the file. The caller must hold no view of Bytes. Idempotent.
func (m *Memory) Close() {
	if m == nil {
		return
	}
	m.CloseFile()
	if m.Bytes != nil {
		_ = unix.Munmap(m.Bytes)
		m.Bytes = nil
	}
}

// Bell is a doorbell in its own memory, which can be passed to another process. A rank has one Bell for all events
// that it waits for.
type Bell struct {
	*Doorbell
	Memory *Memory
}

// NewBell creates a doorbell. The caller closes it after it has closed every client that uses it.
func NewBell() (*Bell, error) {
	mem, err := NewMemory("lightpath-bell", DoorbellSize)
	if err != nil {
		return nil, err
	}
	door, err := NewDoorbell(mem.Bytes)
	if err != nil {
		mem.Close()
		return nil, err
	}
	return &Bell{door, mem}, nil
}

// Close releases the memory. No Wait or Ring may be in progress.
func (b *Bell) Close() { b.Memory.Close() }
