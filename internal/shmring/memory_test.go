package shmring

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// received returns a copy of m's descriptor, as another process would receive it.
func received(t *testing.T, m *Memory) int {
	t.Helper()
	fd, err := unix.Dup(m.File())
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestMemoryIsSharedAndSealed(t *testing.T) {
	m, err := NewMemory("lightpath-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	other, err := AdoptMemory(received(t, m), 4096, unix.PROT_READ)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if m.Bytes[100] = 7; other.Bytes[100] != 7 {
		t.Error("not the same memory")
	}
	for _, size := range []int64{0, 8192} {
		if unix.Ftruncate(m.File(), size) == nil {
			t.Errorf("the size was changed to %d", size)
		}
	}
	if err := m.SealWrites(); err != nil {
		t.Fatal(err)
	}
	if m.Bytes[100] = 8; other.Bytes[100] != 8 {
		t.Error("the first mapping is no longer writable after SealWrites")
	}
	if w, err := AdoptMemory(received(t, m), 4096, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		w.Close()
		t.Error("sealed memory was mapped for writing")
	}
	m.CloseFile()
	if m.Close(); m.File() != -1 || m.Bytes != nil {
		t.Error("not closed")
	}
	m.Close()
	(*Memory)(nil).Close()
}

func TestAdoptRefuses(t *testing.T) {
	m, err := NewMemory("lightpath-test", 100)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	open, err := unix.MemfdCreate("lightpath-test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(open, 100); err != nil {
		t.Fatal(err)
	}
	for name, fd := range map[string]int{"too short": received(t, m), "not sealed": open, "no file": -1} {
		size := 100
		if name == "too short" {
			size = 101
		}
		if a, err := AdoptMemory(fd, size, unix.PROT_READ); err == nil {
			a.Close()
			t.Errorf("%s: accepted", name)
		} else if !strings.Contains(err.Error(), "received memory") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBellWakesThroughAnotherMapping(t *testing.T) {
	bell, err := NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	mem, err := AdoptMemory(received(t, bell.Memory), DoorbellSize, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	far, err := NewDoorbell(mem.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	armed := bell.Arm()
	done := make(chan struct{})
	go func() { bell.Wait(armed, time.Hour); close(done) }()
	far.Ring()
	<-done
}
