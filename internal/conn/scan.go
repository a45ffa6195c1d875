package conn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// mostScanned bounds what one SCAN looks at: the server answers nobody else meanwhile. fewestScanned are worth a round trip.
const fewestScanned, mostScanned = 100, 1000

// literally is a pattern that matches this text.
var literally = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// Scan implements Transport. The nodes of a cluster are scanned one after the other, by address. The cursor names the one that
// is next.
func (g *goRedis) Scan(ctx context.Context, cursor, prefix string, limit int) (keys []string, next string, err error) {
	addr, at, found := strings.Cut(cursor, " ")
	if !found {
		addr, at = "", cmp.Or(cursor, "0")
	}
	from, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return nil, "", Refusal(fmt.Errorf("%q is no cursor", cursor))
	}
	all, err := g.primaries(ctx)
	if err != nil {
		return nil, "", err
	}
	i, same := slices.BinarySearchFunc(all, addr, func(n *redis.Client, addr string) int { return cmp.Compare(n.Options().Addr, addr) })
	if !g.cluster {
		i, same = 0, true
	}
	if i == len(all) {
		return nil, "", nil // the last node has gone
	}
	if !same {
		from = 0
	}
	match := literally.Replace(prefix) + "*"
	keys, more, err := all[i].Scan(ctx, from, match, int64(min(max(limit, fewestScanned), mostScanned))).Result()
	keys = slices.DeleteFunc(keys, IsHelper) // of a prefix that both begin with
	switch {
	case err != nil:
		return nil, "", g.silence.named(explained(g.prefix, match, err))
	case more == 0 && i+1 == len(all):
		return keys, "", nil
	case more == 0:
		i++
	}
	next = strconv.FormatUint(more, 10)
	if g.cluster {
		next = all[i].Options().Addr + " " + next
	}
	return keys, next, nil
}

// primaries returns a client for each server that has keys of its own, ordered by address.
func (g *goRedis) primaries(ctx context.Context) (all []*redis.Client, err error) {
	switch c := g.client.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		err = c.ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, n)
			return nil
		})
		slices.SortFunc(all, func(a, b *redis.Client) int { return cmp.Compare(a.Options().Addr, b.Options().Addr) })
	case *redis.Client:
		all = []*redis.Client{c}
	}
	return all, err
}
