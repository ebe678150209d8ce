package msccl

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"lightpath/collectives/schedule"
	"lightpath/internal/files"
	"lightpath/plans"
)

// Prefix is the prefix of algorithm names that refer to files: "msccl:FILE".
const Prefix = "msccl:"

// Load reads and decodes a file. Errors: those of the file system and [ErrFormat].
func Load(path string) (*File, error) {
	text, err := files.Read(path, maxText)
	if err != nil {
		return nil, fmt.Errorf("msccl: %w", err)
	}
	f, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Named loads the file of an algorithm name of the form "msccl:FILE", and returns nil for other names. Errors: those of
// [Load].
func Named(algorithm string) (*File, error) {
	path, ok := strings.CutPrefix(algorithm, Prefix)
	if !ok {
		return nil, nil
	}
	return Load(path)
}

// Build is like [schedule.Build], and also accepts "msccl:FILE". It then loads the file, which must be for c and n
// ranks. Errors: those of [schedule.Build], [Load] and [File.For].
func Build(c schedule.Collective, algorithm string, n, root int, opts ...schedule.Option) (*schedule.Schedule, error) {
	f, err := Named(algorithm)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return schedule.Build(c, algorithm, n, root, opts...)
	}
	s, err := f.For(c, n, root, opts...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", algorithm, err)
	}
	return s, nil
}

// ProblemOf is like [schedule.ProblemOf], and also accepts "msccl:FILE". Errors: those of [Build] and
// schedule.ProblemOf.
func ProblemOf(c schedule.Collective, algorithm string, n, root int, bytes float64, fabric *plans.Problem,
	opts ...schedule.Option) (*plans.Problem, error) {
	if !strings.HasPrefix(algorithm, Prefix) {
		p, _, err := schedule.ProblemOf(c, algorithm, n, root, bytes, fabric, opts...)
		return p, err
	}
	s, err := Build(c, algorithm, n, root, opts...)
	if err != nil {
		return nil, err
	}
	p, _, err := schedule.Problem(s, bytes, fabric)
	return p, err
}

// Check returns an error if the algorithm is not defined for c on n ranks. It validates a file but does not prove that
// it is correct. Errors: those of [schedule.Canonical] and [Load], and [ErrMismatch].
func Check(c schedule.Collective, algorithm string, n int) error {
	f, err := Named(algorithm)
	switch {
	case err != nil:
		return err
	case f == nil:
		_, err := schedule.Canonical(c, algorithm, n)
		return err
	}
	if _, err := f.matching(c, n); err != nil {
		return fmt.Errorf("%s: %w", algorithm, err)
	}
	return nil
}

// For is like [File.Schedule]. It returns [ErrMismatch] if f is not for c or not for n ranks.
func (f *File) For(c schedule.Collective, n, root int, opts ...schedule.Option) (*schedule.Schedule, error) {
	g, err := f.matching(c, n)
	if err != nil {
		return nil, err
	}
	return g.Schedule(root, opts...)
}

func (f *File) matching(c schedule.Collective, n int) (*File, error) {
	if f.Ranks() != n {
		return nil, fmt.Errorf("%w: ngpus: %d, want %d", ErrMismatch, f.Ranks(), n)
	}
	return f.As(c)
}

// Identity returns a name of f for messages, signatures and keys: "msccl:NAME#DIGEST". It does not depend on the path
// of the file or on its white space. The schedules of f have it as their Algorithm.
func (f *File) Identity() string {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_.", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, f.Name)
	sum := sha256.Sum256(Encode(f))
	return fmt.Sprintf("%s%s#%x", Prefix, name[:min(len(name), 40)], sum[:8])
}
