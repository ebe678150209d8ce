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

	"lightpath/internal/files"
	"lightpath/plans"
	"lightpath/plans/sizes"
)

// Sentinels of this package.
var (
	// ErrMiss is wrapped by errors about a key, size or file name that the cache does not have.
	ErrMiss = errors.New("cache: no plan")
	// ErrCorrupt is wrapped by errors about a file that exists but must not be used.
	ErrCorrupt = errors.New("cache: unusable plan file")
	// ErrStale is wrapped, along with ErrCorrupt, by errors about a file that another release
	// wrote in another format.
	ErrStale = errors.New("cache: plan file of another release")
)

// Key is everything that a plan depends on, except the size: calls with equal keys differ only in their bytes. Keys are
// comparable. A field that does not matter to a caller stays zero.
type Key struct {
	Collective string `json:"collective"`
	Algorithm  string `json:"algorithm"` // with its parameters and variant
	Root       int    `json:"root,omitempty"`
	Ranks      int    `json:"ranks"`
	// Fabric is the fabric's digest, and FabricName its name. Members is the digest of the ranks' pods. Maps is the
	// digest of the planes' maps, if the plan begins at these. Ranks at other ports use the same plan. A fabric that
	// changes has another digest, so its old plans are never found.
	Fabric     Hash   `json:"fabric"`
	FabricName string `json:"fabric_name,omitempty"`
	Members    Hash   `json:"members"`
	Maps       Hash   `json:"maps"`
	// Planes has a bit for each plane that may be used.
	Planes uint64 `json:"planes"`
	// Loop says that the plan returns to its initial maps.
	Loop           bool          `json:"loop,omitempty"`
	Planner        string        `json:"planner"`
	PlannerVersion int           `json:"planner_version"`
	TimeLimit      time.Duration `json:"time_limit_ns,omitempty"`
	// Tolerance is how much longer a plan may take than one made for its size alone, as a fraction.
	Tolerance float64 `json:"tolerance,omitempty"`
}

// Hash is a SHA-256; zero if there is nothing to hash.
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

// family is the part of file names that all sizes of a key share.
func (k *Key) family() string {
	text, _ := json.Marshal(k) // strings, numbers and hashes cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// name returns the name of the file for the sizes min to max of a family. The name begins with the part that differs.
func name(family string, min, max int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", family, min, max))
	return hex.EncodeToString(sum[:8]) + "-" + family + suffix
}

const (
	suffix     = ".json"
	tempPrefix = "." // of files that are being written, see [files.Write]
	maxFile    = 256 << 20
	maxFront   = 4096 // spans held in memory
	staleTemp  = time.Hour
)

// Entry is a cached span of sizes under its key. Goroutines share it, so no caller may change it.
type Entry struct {
	Key  Key
	Span *sizes.Span // the digests of its plans are set
}

// Name returns the file name of e.
func (e *Entry) Name() string { return name(e.Key.family(), e.Span.Min, e.Span.Max) }

// Cache is an open cache. All methods may be called concurrently, also by several
// processes on one directory.
type Cache struct {
	dir   string
	mu    sync.RWMutex
	front map[Key]sizes.Ladder
	held  int // spans in front
}

// Open returns the cache in dir. It creates a missing directory for this user alone (0700), and removes the temporary
// files of writers that died.
func Open(dir string) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil && strings.HasPrefix(f.Name(), tempPrefix) &&
			time.Since(info.ModTime()) > staleTemp {
			os.Remove(filepath.Join(dir, f.Name()))
		}
	}
	return &Cache{dir: dir, front: make(map[Key]sizes.Ladder)}, nil
}

// Dir returns the directory of the cache.
func (c *Cache) Dir() string { return c.dir }

// Get returns a span that serves a call of the given bytes under key. If there is none, the error wraps [ErrMiss]. If
// its file must not be used, the error wraps [ErrCorrupt] and names the file and the reason.
//
// Hot path if the span is in memory: no allocation, one read lock.
func (c *Cache) Get(key *Key, bytes int64) (*sizes.Span, error) {
	if s := c.Peek(key, bytes); s != nil {
		return s, nil
	}
	ladder, err := c.load(key)
	if s := ladder.Find(bytes); s != nil {
		return s, nil
	}
	return nil, err
}

// Peek returns a span for a call of the given bytes under key if it is in memory, else nil.
// It never touches files. Hot path: no allocation, one read lock.
func (c *Cache) Peek(key *Key, bytes int64) *sizes.Span {
	c.mu.RLock()
	s := c.front[*key].Find(bytes)
	c.mu.RUnlock()
	return s
}

// Ladder returns every usable span under key, read anew from the directory.
func (c *Cache) Ladder(key *Key) (sizes.Ladder, error) {
	ladder, err := c.load(key)
	if errors.Is(err, ErrMiss) {
		err = nil
	}
	return ladder, err
}

// load reads the files of key and keeps usable spans in memory. With an error it also returns the usable spans. The
// error wraps ErrMiss, or names the files that must not be used.
func (c *Cache) load(key *Key) (sizes.Ladder, error) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	var bad error
	end := "-" + key.family() + suffix
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), end) {
			continue
		}
		e, err := c.read(f.Name())
		switch {
		case errors.Is(err, os.ErrNotExist): // removed meanwhile
		case err != nil:
			bad = errors.Join(bad, err)
		case e.Key != *key:
			bad = errors.Join(bad, corrupt(c.path(f.Name()), errors.New("it is for another key")))
		default:
			c.remember(e)
		}
	}
	if bad == nil {
		bad = ErrMiss
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.front[*key], bad
}

// remember adds a span to those in memory.
func (c *Cache) remember(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.front[e.Key]
	if c.held >= maxFront {
		for k, l := range c.front { // any one: plans that are in use come back from their files
			if k != e.Key {
				c.held -= len(l)
				delete(c.front, k)
				break
			}
		}
	}
	l := old.With(e.Span)
	c.held += len(l) - len(old)
	c.front[e.Key] = l
}

// Put stores a span under key and removes the spans that it contains. It refuses an infeasible
// plan. The file appears complete or not at all, and is on disk when Put returns. The span that Put returns holds
// sealed copies of the plans. They share memory with the caller's plans and problems, which must not change any more.
func (c *Cache) Put(key Key, span *sizes.Span) (*Entry, error) {
	e := &Entry{Key: key}
	var err error
	if e.Span, err = sealed(span); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	if err := e.verify(); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	text, err := e.encode()
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	if err := files.Write(c.path(e.Name()), text, 0o600); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	c.mu.RLock()
	old := c.front[key]
	c.mu.RUnlock()
	c.remember(e)
	family := key.family()
	for _, o := range old {
		if o.Min >= span.Min && o.Max <= span.Max && (o.Min > span.Min || o.Max < span.Max) {
			os.Remove(c.path(name(family, o.Min, o.Max)))
		}
	}
	return e, nil
}

// sealed returns a copy of span whose plans carry their digests.
func sealed(span *sizes.Span) (*sizes.Span, error) {
	s := *span
	for _, end := range []*sizes.Sized{&s.Low, &s.High} {
		plan := *end.Plan
		if err := plans.Seal(end.Problem, &plan); err != nil {
			return nil, err
		}
		end.Plan = &plan
	}
	if s.Min == s.Max {
		s.High = s.Low
	}
	return &s, nil
}

// Info describes a file of the cache.
type Info struct {
	Name    string
	Bytes   int64
	ModTime time.Time
	Entry   *Entry // nil where the file is unusable
	Err     error  // why it is; wraps ErrCorrupt and names the file
}

// List reads and describes every file of the cache, in the order of names. The error is about the directory only: an
// unusable file is an Info with Err.
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
		if info.Err == nil && info.Entry.Name() != f.Name() {
			info.Entry, info.Err = nil, corrupt(c.path(f.Name()), errors.New("its name is not that of its key"))
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Remove deletes the file called name, from memory too. If there is no such file, the error wraps [ErrMiss].
func (c *Cache) Remove(name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return fmt.Errorf("%w called %q", ErrMiss, name)
	}
	c.mu.Lock()
	for k, l := range c.front {
		if strings.HasSuffix(name, k.family()+suffix) { // its others come back from their files
			c.held -= len(l)
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
