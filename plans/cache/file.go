package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"lightpath/plans"
	"lightpath/plans/check"
)

// corrupt says why the file at path must not be used.
func corrupt(path string, reason error) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, reason)
}

// extra are the fields that a cached file has beside those of a plan file.
type extra struct {
	Key     json.RawMessage `json:"key"`
	Problem json.RawMessage `json:"problem"`
}

// encode writes e as a plan file with the fields "key" and "problem" in front.
func (e *Entry) encode() ([]byte, error) {
	key, err := json.Marshal(e.Key)
	if err != nil {
		return nil, err
	}
	problem, err := plans.EncodeProblem(e.Problem)
	if err != nil {
		return nil, err
	}
	plan, err := plans.EncodePlan(e.Plan)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{[]byte(`{"key":`), key, []byte(",\n\"problem\":"), bytes.TrimSpace(problem), []byte(",\n"), plan[1:]}, nil), nil
}

// decode reads what encode wrote and verifies it.
func decode(data []byte) (*Entry, error) {
	plan, err := plans.DecodePlan(data) // strict: repeated fields end here
	if err != nil {
		return nil, err
	}
	var x extra
	if err := json.Unmarshal(data, &x); err != nil {
		return nil, err
	}
	e := &Entry{Plan: plan}
	fields := json.NewDecoder(bytes.NewReader(x.Key))
	fields.DisallowUnknownFields()
	if err := fields.Decode(&e.Key); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if e.Problem, err = plans.DecodeProblem(x.Problem); err != nil {
		return nil, err
	}
	if err := plans.VerifyDigest(e.Problem, plan); err != nil {
		return nil, err
	}
	return e, e.verify()
}

// verify refuses a plan that its own problem does not allow.
func (e *Entry) verify() error {
	_, err := check.Check(e.Problem, e.Plan)
	return err
}

// read returns the verified entry in the file called name; a missing file is
// [os.ErrNotExist], anything else [ErrCorrupt].
func (c *Cache) read(name string) (*Entry, error) {
	path := c.path(name)
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return nil, corrupt(path, err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, corrupt(path, errors.New("not a regular file"))
	case info.Size() > maxFile:
		return nil, corrupt(path, fmt.Errorf("larger than %d bytes", maxFile))
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, corrupt(path, err)
	}
	e, err := decode(data)
	if err != nil {
		return nil, corrupt(path, err)
	}
	return e, nil
}

// write makes the file called name hold data, at once for every reader and durably.
func (c *Cache) write(name string, data []byte) (err error) {
	f, err := os.CreateTemp(c.dir, tempPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), c.path(name)); err != nil {
		return err
	}
	dir, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
