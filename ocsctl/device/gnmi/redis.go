package gnmi

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/redis/go-redis/v9"

	"lightpath/ocsctl/driver/gnmi/dialect"
	"lightpath/ocsctl/internal/mtls"
)

// databases are the numbers of SONiC's databases by name, in the order in which they are written.
var databases = []struct {
	name   string
	number int
}{{"CONFIG_DB", 4}, {"STATE_DB", 6}}

// ErrRedis means that the tree is not of the kind that Redis holds, or the server is not on this host.
var ErrRedis = errors.New("cannot be kept in Redis")

// hashes are a database's hashes, by key and field.
type hashes map[string]map[string]string

// mirror writes the tree into Redis, then its changes, until the context ends. Keys are a table and
// an entry, TABLE|entry, and every database's changes are one transaction.
func (s *server) mirror(ctx context.Context, address string) error {
	if s.words.Config.Entry[0].Name != databases[0].name {
		return fmt.Errorf("%w: dialect %s", ErrRedis, s.words.Name)
	}
	if !mtls.Loopback(address) {
		return fmt.Errorf("%w: %s is not on this host", ErrRedis, address)
	}
	err := s.follow(ctx, address)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *server) follow(ctx context.Context, address string) error {
	clients := make(map[string]*redis.Client)
	told := make(map[string]hashes)
	for _, db := range databases {
		c := redis.NewClient(&redis.Options{Addr: address, DB: db.number, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true})
		defer c.Close() //nolint:errcheck // the writes are committed
		clients[db.name] = c
		var err error
		if told[db.name], err = s.adopt(ctx, c, db.name); err != nil {
			return fmt.Errorf("redis %s: %s: %w", address, db.name, err)
		}
	}
	for {
		hardware, edited := s.changed()
		now := split(s.leaves())
		for _, db := range databases {
			if err := write(ctx, clients[db.name], told[db.name], now[db.name]); err != nil {
				return fmt.Errorf("redis %s: %s: %w", address, db.name, err)
			}
		}
		told = now
		select {
		case <-ctx.Done():
			return nil
		case <-hardware:
		case <-edited:
		}
	}
}

// adopt reads what a database has in the dialect's lists, so that what is not in the tree goes.
func (s *server) adopt(ctx context.Context, c *redis.Client, name string) (hashes, error) {
	all := make(hashes)
	for _, t := range []dialect.Table{s.words.Config, s.words.Status, s.words.Ports} {
		if t.Entry[0].Name != name {
			continue
		}
		found := c.Scan(ctx, 0, t.Entry[2].Name+"|*", 0).Iterator()
		for found.Next(ctx) {
			fields, err := c.HGetAll(ctx, found.Val()).Result()
			if err != nil {
				return nil, err
			}
			all[found.Val()] = fields
		}
		if err := found.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// split sorts leaves, /DATABASE/localhost/TABLE/entry/field, into hashes by database.
func split(leaves []dialect.Leaf) map[string]hashes {
	all := make(map[string]hashes)
	for _, db := range databases {
		all[db.name] = make(hashes)
	}
	for _, l := range leaves {
		db := all[l.Elems[0].GetName()]
		key := l.Elems[2].GetName() + "|" + l.Elems[3].GetName()
		if db[key] == nil {
			db[key] = make(map[string]string)
		}
		db[key][l.Elems[4].GetName()] = l.Value
	}
	return all
}

// write makes a database that holds old hold now.
func write(ctx context.Context, c *redis.Client, old, now hashes) error {
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for key, fields := range old {
			if _, stays := now[key]; !stays {
				p.Del(ctx, key)
				continue
			}
			for f := range fields {
				if _, stays := now[key][f]; !stays {
					p.HDel(ctx, key, f)
				}
			}
		}
		for key, fields := range now {
			if !maps.Equal(fields, old[key]) {
				p.HSet(ctx, key, fields)
			}
		}
		return nil
	})
	return err
}
