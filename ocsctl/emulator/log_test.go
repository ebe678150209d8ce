package emulator

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans/circuit"
)

func sampleFrame(i int) *FrameRecord {
	return &FrameRecord{Start: int64(i), Finish: int64(2 * i), Bytes: uint32(i), Epoch: 3, Plane: 1, Src: 2, Dst: 3,
		Verdict: Verdict(i % int(numVerdicts)), Label: [LabelSize]byte{byte(i), 63: 9}}
}

// writeLog makes a log of n frames with a switch after the first.
func writeLog(t testing.TB, path string, n int) (frames []FrameRecord, change SwitchRecord) {
	t.Helper()
	l, err := newFrameLog(path, 4, 2)
	require.NoError(t, err)
	change = SwitchRecord{Start: 5, End: 6, Plane: 1, Epoch: 9, Map: circuit.Permutation{1, 0, circuit.Dark, 2}}
	for i := range n {
		frames = append(frames, *sampleFrame(i))
		l.frame(&frames[i])
		if i == 0 {
			l.change(&change)
		}
	}
	require.NoError(t, l.close())
	return frames, change
}

func TestLogComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	frames, change := writeLog(t, path, 12345)
	l, err := ReadLog(path)
	require.NoError(t, err)
	if l.Ports != 4 || l.Planes != 2 || !reflect.DeepEqual(l.Frames, frames) || !reflect.DeepEqual(l.Switches,
		[]SwitchRecord{change}) {
		t.Errorf("%d frames, %v", len(l.Frames), l.Switches)
	}
}

// TestLogOfARunningSwitch: a switch that is started twice by mistake leaves the log of the first as it is.
func TestLogOfARunningSwitch(t *testing.T) {
	c := fourPorts(t)
	c.FrameLog = filepath.Join(t.TempDir(), "log")
	first, err := Start(c)
	require.NoError(t, err)
	require.NoError(t, first.core.Do(func(int64) {
		for i := range 2 * logChunk / recordSize { // so that a part of it is in the file
			first.log.frame(sampleFrame(i))
		}
	}))
	if second, err := Start(c); !errors.Is(err, local.ErrRunning) {
		t.Errorf("%v, %v", second, err)
	}
	require.NoError(t, first.Close())
	if _, err := ReadLog(c.FrameLog); err != nil {
		t.Error(err)
	}
	start(t, c) // the next one begins it anew
}

func TestLogCutOffAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, 3)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range len(data) {
		if _, err := parseLog(data[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes passed for a log", n, len(data))
		} else if n >= headerSize && !errors.Is(err, ErrLogTruncated) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for at, bad := range map[int]byte{0: 'X', 8: 2, 12: 0, headerSize: 'Q', headerSize + 1: 99, headerSize + 2: 7,
		len(data) - recordSize + 8: 1} {
		d := append([]byte(nil), data...)
		d[at] = bad
		if _, err := parseLog(d); !errors.Is(err, ErrLogCorrupt) {
			t.Errorf("byte %d = %#x: %v", at, bad, err)
		}
	}
}

// When the disk is slower than the switch the data path goes on and the log says that it
// is worthless.
func TestLogOverflowIsLoud(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	slow, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // reads nothing at first
	require.NoError(t, err)
	defer shut(t, slow)
	l, err := newFrameLog(path, 4, 2)
	require.NoError(t, err)
	for n := 0; l.lost == 0; n++ {
		if n > (logChunks+2)*logChunk/recordSize {
			t.Fatal("an endless number of records fits")
		}
		l.frame(sampleFrame(1))
	}
	data := make(chan []byte)
	go func() {
		b, err := io.ReadAll(slow)
		if err != nil {
			t.Error(err)
		}
		data <- b
	}()
	require.NoError(t, l.close())
	if _, err := parseLog(<-data); !errors.Is(err, ErrLogOverflow) {
		t.Errorf("%v", err)
	}
}

func FuzzReadLog(f *testing.F) {
	path := filepath.Join(f.TempDir(), "log")
	writeLog(f, path, 2)
	data, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(data)
	f.Add(data[:headerSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLog(b)
		if err != nil {
			return
		}
		for _, s := range l.Switches {
			if s.Map.Validate(l.Ports) != nil {
				t.Fatal("a switch to no map")
			}
		}
		if n := headerSize + len(l.Frames)*recordSize; n > len(b) {
			t.Fatalf("%d frames from %d bytes", len(l.Frames), len(b))
		}
	})
}
