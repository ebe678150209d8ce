package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"lightpath/internal/decode"
	"lightpath/internal/files"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/sizes"
)

// corrupt returns the error that the file at path must not be used.
func corrupt(path string, reason error) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, reason)
}

// format is the version of cached files. Version 1 had no number and no intervals.
const format = 2

// extra holds the fields that a cached file has in addition to a plan file's. The plan of the plan file is that of the
// largest call.
type extra struct {
	Format   int             `json:"cache"`
	Key      json.RawMessage `json:"key"`
	MinBytes int64           `json:"min_bytes"`
	MaxBytes int64           `json:"max_bytes"`
	Problem  json.RawMessage `json:"problem"`
	Low      *struct {
		Problem json.RawMessage `json:"problem"`
		Plan    json.RawMessage `json:"plan"`
	} `json:"low"` // that of the smallest call, where it is another
}

// encode writes e as a plan file with the fields of extra in front.
func (e *Entry) encode() ([]byte, error) {
	key, err := json.Marshal(e.Key)
	if err != nil {
		return nil, err
	}
	b := fmt.Appendf(nil, "{\"cache\":%d,\"key\":%s,\n\"min_bytes\":%d,\"max_bytes\":%d,\n\"problem\":", format, key,
		e.Span.Min, e.Span.Max)
	problem, plan, err := encodeSized(&e.Span.High)
	if err != nil {
		return nil, err
	}
	b = append(b, problem...)
	if e.Span.Min < e.Span.Max {
		problem, low, err := encodeSized(&e.Span.Low)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, ",\n\"low\":{\"problem\":%s,\n\"plan\":%s}", problem, low)
	}
	return append(append(b, ",\n"...), plan[1:]...), nil
}

func encodeSized(s *sizes.Sized) (problem, plan []byte, err error) {
	if problem, err = plans.EncodeCompactProblem(s.Problem); err == nil {
		plan, err = plans.EncodeCompactPlan(s.Plan)
	}
	return bytes.TrimSpace(problem), plan, err
}

// decodeEntry reads what encode wrote and verifies it.
func decodeEntry(data []byte) (*Entry, error) {
	high, err := plans.DecodePlan(data) // strict: repeated fields end here
	if err != nil {
		return nil, err
	}
	var x extra
	if err := decode.JSON(data, &x); err != nil {
		return nil, err
	}
	if x.Format != format {
		return nil, fmt.Errorf("%w: format %d, this one reads %d", ErrStale, max(x.Format, 1), format)
	}
	e := &Entry{Span: &sizes.Span{Min: x.MinBytes, Max: x.MaxBytes}}
	if err := decode.StrictJSON(x.Key, &e.Key); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if x.MinBytes < 0 || x.MaxBytes < x.MinBytes || (x.Low == nil) != (x.MinBytes == x.MaxBytes) {
		return nil, fmt.Errorf("sizes %d..%d", x.MinBytes, x.MaxBytes)
	}
	if err := decodeSized(&e.Span.High, x.Problem, high); err != nil {
		return nil, err
	}
	e.Span.Low = e.Span.High
	if x.Low != nil {
		low, err := plans.DecodePlan(x.Low.Plan)
		if err != nil {
			return nil, fmt.Errorf("low: %w", err)
		}
		if err := decodeSized(&e.Span.Low, x.Low.Problem, low); err != nil {
			return nil, fmt.Errorf("low: %w", err)
		}
	}
	return e, e.verify()
}

func decodeSized(s *sizes.Sized, problem []byte, plan *plans.Plan) (err error) {
	if s.Problem, err = plans.DecodeProblem(problem); err != nil {
		return err
	}
	s.Plan = plan
	return plans.VerifyDigest(s.Problem, plan)
}

// verify refuses plans that are not feasible for their own problems, or that have different patterns.
func (e *Entry) verify() error {
	for _, s := range []*sizes.Sized{&e.Span.Low, &e.Span.High} {
		if _, err := check.Check(s.Problem, s.Plan); err != nil {
			return err
		}
	}
	return e.Span.Validate()
}

// read returns the verified entry in the file called name. The error wraps [os.ErrNotExist] if the file is missing,
// else [ErrCorrupt].
func (c *Cache) read(name string) (*Entry, error) {
	path := c.path(name)
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return nil, corrupt(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, corrupt(path, errors.New("not a regular file"))
	}
	data, err := files.Read(path, maxFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, corrupt(path, err)
	}
	e, err := decodeEntry(data)
	if err != nil {
		return nil, corrupt(path, err)
	}
	return e, nil
}
