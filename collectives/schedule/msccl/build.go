package msccl

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"

	"lightpath/collectives/schedule"
)

// Prefix begins the names of algorithms that are files: "msccl:FILE".
const Prefix = "msccl:"

// Load reads and decodes a file. digest identifies its text. Errors: those of the file system
// and [ErrFormat].
func Load(path string) (f *File, digest uint64, err error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("msccl: %w", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxText+1))
	if err != nil {
		return nil, 0, fmt.Errorf("msccl: %w", err)
	}
	if f, err = Decode(text); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(text)
	return f, binary.LittleEndian.Uint64(sum[:]), nil
}

// Build is [schedule.Build] for all names of algorithms, "msccl:FILE" included: then it reads
// the file, which must be for c and n ranks. Errors: those of [schedule.Build], [Load] and
// [File.Schedule], and [ErrMismatch].
func Build(c schedule.Collective, algorithm string, n, root int, opts ...schedule.Option) (*schedule.Schedule, error) {
	path, ok := strings.CutPrefix(algorithm, Prefix)
	if !ok {
		return schedule.Build(c, algorithm, n, root, opts...)
	}
	f, _, err := Load(path)
	if err != nil {
		return nil, err
	}
	s, err := f.For(c, n, root, opts...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.Algorithm = algorithm
	return s, nil
}

// For is [File.Schedule] for callers that want a certain collective on so many ranks; else it
// fails with [ErrMismatch].
func (f *File) For(c schedule.Collective, n, root int, opts ...schedule.Option) (*schedule.Schedule, error) {
	if f.Collective != c {
		return nil, fmt.Errorf("%w: coll: it is %v, not %v", ErrMismatch, f.Collective, c)
	}
	if f.Ranks() != n {
		return nil, fmt.Errorf("%w: ngpus: it is for %d ranks, not %d", ErrMismatch, f.Ranks(), n)
	}
	return f.Schedule(root, opts...)
}
