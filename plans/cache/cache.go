package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/plans"
)

// Sentinels of this package.
var (
	// ErrMiss says that the cache has no plan for a key.
	ErrMiss = errors.New("cache: no plan")
	// ErrCorrupt is wrapped by errors about a file that is there but must not be used.
	ErrCorrupt = errors.New("cache: unusable plan file")
)

// Key is everything that a plan depends on. Two calls with equal keys may use one plan.
// It is comparable; a field that does not matter to a caller stays zero.
type Key struct {
	Collective string `json:"collective"`
	Algorithm  string `json:"algorithm"`
	Root       int    `json:"root,omitempty"`
	Ranks      int    `json:"ranks"`
	ElemBytes  int    `json:"elem_bytes,omitempty"`
	// MinBytes and MaxBytes are the interval of message sizes that share the plan, both
	// included.
	MinBytes int64 `json:"min_bytes"`
	MaxBytes int64 `json:"max_bytes"`
	// Fabric is the fabric's digest, Members one of the ports of the ranks in order, Maps
	// one of the planes' maps where the plan does not begin with its own.
	Fabric  Hash `json:"fabric"`
	Members Hash `json:"members"`
	Maps    Hash `json:"maps"`
	// Planes has a bit for each plane that may be used.
	Planes uint64 `json:"planes"`
	// Loop says that the plan returns to its initial maps.
	Loop           bool          `json:"loop,omitempty"`
	Planner        string        `json:"planner"`
	PlannerVersion int           `json:"planner_version"`
	Seed           uint64        `json:"seed,omitempty"`
	TimeLimit      time.Duration `json:"time_limit_ns,omitempty"`
}

// Hash is a SHA-256; zero where there is nothing to hash.
type Hash [sha256.Size]byte

// Sum returns the hash of data.
func Sum(data []byte) Hash { return sha256.Sum256(data) }

// MarshalText writes h in hex, nothing for the zero hash.
func (h Hash) MarshalText() ([]byte, error) {
	if h == (Hash{}) {
		return nil, nil
	}
	return hex.AppendEncode(nil, h[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	*h = Hash{}
	if len(text) == 0 {
		return nil
	}
	if len(text) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("a hash has %d characters, not %d", hex.EncodedLen(len(h)), len(text))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Name returns the file name of k in a cache: the SHA-256 of its JSON form, and ".json".
func (k Key) Name() string {
	text, _ := json.Marshal(k) // strings, numbers and hashes cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]) + suffix
}

const (
	suffix     = ".json"
	tempPrefix = ".put-"
	maxFile    = 256 << 20
	maxFront   = 4096 // plans held in memory
	staleTemp  = time.Hour
)

// Entry is a cached plan with the problem that it answers. It is shared: nobody changes it.
type Entry struct {
	Key     Key
	Problem *plans.Problem
	Plan    *plans.Plan // its Digest is set
}

// Cache is an open cache. All methods may be called concurrently, also by several
// processes on one directory.
type Cache struct {
	dir   string
	mu    sync.RWMutex
	front map[Key]*Entry
}

// Open returns the cache in dir, which it creates for this user alone (0700) where it is
// missing. Remains of writers that died are removed.
func Open(dir string) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil && strings.HasPrefix(f.Name(), tempPrefix) && time.Since(info.ModTime()) > staleTemp {
			os.Remove(filepath.Join(dir, f.Name()))
		}
	}
	return &Cache{dir: dir, front: make(map[Key]*Entry)}, nil
}

// Dir returns the directory of the cache.
func (c *Cache) Dir() string { return c.dir }

// Get returns the plan for key: an error that wraps [ErrMiss] where there is none,
// [ErrCorrupt], with file and reason, where there is one that must not be used.
//
// Hot path where the plan is in memory: no allocation, one read lock.
func (c *Cache) Get(key Key) (*Entry, error) {
	if e := c.Peek(&key); e != nil {
		return e, nil
	}
	e, err := c.read(key.Name())
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, ErrMiss
	case err != nil:
		return nil, err
	case e.Key != key:
		return nil, corrupt(c.path(key.Name()), errors.New("it is for another key"))
	}
	c.remember(e)
	return e, nil
}

// Peek returns the plan for key if it is in memory, else nil. It never touches files.
// Hot path: no allocation, one read lock.
func (c *Cache) Peek(key *Key) *Entry {
	c.mu.RLock()
	e := c.front[*key]
	c.mu.RUnlock()
	return e
}

func (c *Cache) remember(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.front) >= maxFront {
		for k := range c.front { // any one: plans that are in use come back from their files
			delete(c.front, k)
			break
		}
	}
	c.front[e.Key] = e
}

// Put stores plan, which answers problem, under key, replacing what is there. It refuses
// an infeasible plan. The file appears complete or not at all, and is on disk when Put
// returns. The entry that Put returns holds a sealed copy of plan; problem and what plan
// refers to must not change any more.
func (c *Cache) Put(key Key, problem *plans.Problem, plan *plans.Plan) (*Entry, error) {
	sealed := *plan
	if err := plans.Seal(problem, &sealed); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	e := &Entry{Key: key, Problem: problem, Plan: &sealed}
	if err := e.verify(); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	text, err := e.encode()
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	if err := c.write(key.Name(), text); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	c.remember(e)
	return e, nil
}

// Info describes a file of the cache.
type Info struct {
	Name    string
	Bytes   int64
	ModTime time.Time
	Entry   *Entry // nil where the file is unusable
	Err     error  // why it is; wraps ErrCorrupt and names the file
}

// List reads every file of the cache and says what it is, in the order of names. The
// error is about the directory only: an unusable file is an Info with Err.
func (c *Cache) List() ([]Info, error) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	var list []Info
	for _, f := range files {
		if strings.HasPrefix(f.Name(), tempPrefix) {
			continue
		}
		info := Info{Name: f.Name()}
		if stat, err := f.Info(); err == nil {
			info.Bytes, info.ModTime = stat.Size(), stat.ModTime()
		}
		info.Entry, info.Err = c.read(f.Name())
		if errors.Is(info.Err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if info.Err == nil && info.Entry.Key.Name() != f.Name() {
			info.Entry, info.Err = nil, corrupt(c.path(f.Name()), errors.New("its name is not that of its key"))
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Remove deletes the file called name, from memory too. An error that wraps [ErrMiss] says
// that there is none.
func (c *Cache) Remove(name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return fmt.Errorf("%w called %q", ErrMiss, name)
	}
	c.mu.Lock()
	for k := range c.front {
		if k.Name() == name {
			delete(c.front, k)
		}
	}
	c.mu.Unlock()
	err := os.Remove(c.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w called %q", ErrMiss, name)
	}
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

func (c *Cache) path(name string) string { return filepath.Join(c.dir, name) }
