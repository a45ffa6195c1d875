package redlock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/parts"
)

var _ distributed.Inspector = (*Backend)(nil)

const (
	// inspectBudget bounds the exchanges of an inspection and of a Break: all servers are waited for, and one may hang.
	inspectBudget = time.Second
	// settledAfter is the age from which on the votes for a lock are taken to be on all servers that vote for it. A younger one may have come
	// to a server after that was scanned, and so it is listed for each server.
	settledAfter = 10 * time.Second
)

// reply is what one server has of a lock: see inspect.lua.
type reply struct {
	Value   string `json:"value"`
	Left    int64  `json:"left"`
	Readers string `json:"readers"`
	Waiters string `json:"waiters"`
	Broken  string `json:"broken"`
	Fence   string `json:"fence"`
	Now     string `json:"now"`

	CountReaders int64 `json:"nreaders"`
	CountWaiters int64 `json:"nwaiters"`
}

// Inspect implements distributed.Inspector. It names processes, and when they requested the lock: tokens contain no more.
func (b *Backend) Inspect(ctx context.Context, key string) (distributed.Inspection, error) {
	if err := checkKey(key); err != nil {
		return distributed.Inspection{Key: key}, err
	}
	all, err := b.look(ctx, []string{key}, distributed.MaxNamed)
	if err != nil {
		return distributed.Inspection{Key: key}, err
	}
	for _, r := range all[0] {
		if r == nil {
			continue
		}
		if n := conn.FormatIn(r.Value); n != 0 {
			return distributed.Inspection{Key: key}, parts.OtherFormat("redlock", n, Format)
		}
	}
	return b.merge(key, all[0]), nil
}

// look asks all servers what they have of some keys, and waits for all. It returns their replies by key and server.
func (b *Backend) look(ctx context.Context, keys []string, named int) ([][]*reply, error) {
	var names []string
	for _, key := range keys {
		names = append(names, key, helper("q:", key), helper("w:", key), brokenKey(key), fenceKey(key))
	}
	answers, err := b.everybody(ctx, "inspect", ask{Call: *conn.NewCall(inspectScript, names, named), lane: lanes})
	if err != nil {
		return nil, err
	}
	all := make([][]*reply, len(keys))
	for i := range all {
		all[i] = make([]*reply, len(b.nodes))
	}
	for server, text := range answers {
		var found []reply
		if text == "" || json.Unmarshal([]byte(text), &found) != nil || len(found) != len(keys) {
			continue
		}
		for i := range found {
			all[i][server] = &found[i]
		}
	}
	return all, nil
}

// ballot counts the servers that name a token.
type ballot map[string]int

func (v ballot) add(tokens ...string) {
	for _, token := range tokens {
		v[token]++
	}
}

// elected returns the tokens that so many servers name, the oldest first.
func (v ballot) elected(quorum int) (tokens []string) {
	for token, n := range v {
		if _, _, ok := age(token); ok && n >= quorum {
			tokens = append(tokens, token)
		}
	}
	slices.SortFunc(tokens, byAge)
	return tokens
}

// counts are numbers that the servers say.
type counts []int64

// common is what a majority says at least.
func (c counts) common(quorum int) int64 {
	if len(c) < quorum {
		return 0
	}
	slices.Sort(c)
	return c[len(c)-quorum]
}

// census is what the servers have of one lock.
type census struct {
	owners, readers, waiters ballot
	modes                    map[string]distributed.Mode // of waiters
	lefts, holding, queued   counts
	foreign                  int
	fence                    uint64
	broken                   *distributed.Breaking
}

func (c *census) add(r *reply) {
	_, _, ours := age(r.Value)
	switch {
	case strings.HasPrefix(r.Value, readersMark):
		c.readers.add(strings.Fields(r.Readers)...)
	case ours:
		c.owners.add(r.Value)
	case r.Value != "":
		c.foreign++
	}
	if r.Value != "" {
		c.lefts = append(c.lefts, r.Left)
	}
	for word := range strings.FieldsSeq(r.Waiters) {
		token, mode, _ := strings.Cut(word, "/")
		c.waiters.add(token)
		if mode == modeLetter(distributed.Shared) {
			c.modes[token] = distributed.Shared
		}
	}
	c.holding, c.queued = append(c.holding, r.CountReaders), append(c.queued, r.CountWaiters)
	c.fence = max(c.fence, uint64(number(r.Fence)))
	if kept := readBroken(r.Broken); kept != nil && (c.broken == nil || kept.At.After(c.broken.At)) {
		c.broken = kept
	}
}

// readersMark begins the value of a lock that readers hold.
const readersMark = "wllock:rs:"

// merge is what a majority of the servers says.
func (b *Backend) merge(key string, replies []*reply) distributed.Inspection {
	c := census{owners: ballot{}, readers: ballot{}, waiters: ballot{}, modes: map[string]distributed.Mode{}}
	for _, r := range replies {
		if r != nil {
			c.add(r)
		}
	}
	found := distributed.Inspection{Key: key, Fence: c.fence, Broken: c.broken}
	left := time.Duration(c.lefts.common(b.quorum)) * time.Millisecond
	if c.foreign >= b.quorum {
		found.Foreign, found.Holders = true, []distributed.Holder{{Left: left}}
		return found
	}
	holders := c.owners.elected(b.quorum)
	if len(holders) == 0 {
		if holders = c.readers.elected(b.quorum); len(holders) > 0 {
			found.Mode = distributed.Shared
			found.MoreHolders = max(int(c.holding.common(b.quorum))-len(holders), 0)
		}
	}
	for _, token := range holders {
		found.Holders = append(found.Holders, distributed.Holder{Instance: nameOf(token), Since: since(token), Left: left})
	}
	if len(holders) > 0 {
		found.Since, found.State = since(holders[0]), strings.Join(holders, " ")
	}
	for _, token := range c.waiters.elected(b.quorum) {
		if !slices.Contains(holders, token) { // it waits on servers that have not voted for it
			found.Waiters = append(found.Waiters, distributed.Waiter{Instance: nameOf(token), Mode: c.modes[token], Since: since(token)})
		}
	}
	found.MoreWaiters = max(int(c.queued.common(b.quorum))-len(found.Waiters), 0)
	return found
}

// since is when the attempt of a token has asked, by its process's clock. Zero: it is that of a detached lease.
func since(token string) time.Time {
	id, _, _ := age(token)
	if id.Number == detachedNumber {
		return time.Time{}
	}
	return time.UnixMicro(int64(id.Number))
}

// List implements distributed.Inspector, by SCAN of one server after the other. A lock is in the page of the first server that has it. A lock
// that was acquired a moment ago may be in several pages. The cursor is that of the server, after the server's number.
func (b *Backend) List(ctx context.Context, prefix, cursor string, limit int) ([]distributed.Inspection, string, error) {
	if err := parts.CheckPage("redlock", limit); err != nil {
		return nil, "", err
	}
	if err := checkKey(prefix); err != nil {
		return nil, "", err
	}
	number, from, _ := strings.Cut(cursor, " ")
	server, _ := strconv.Atoi(number)
	if server < 0 || server >= len(b.nodes) {
		return nil, "", fmt.Errorf("redlock: %q is no cursor", cursor)
	}
	if b.client.Closed() {
		return nil, "", distributed.ErrClosed
	}
	keys, next, err := b.nodes[server].scan(ctx, from, prefix, limit)
	if err != nil {
		next = "" // the locks that it has others have, too; if no majority answers, the next question says so
	}
	page, err := b.page(ctx, server, prefix, keys)
	if err != nil {
		return nil, "", err
	}
	switch {
	case next != "":
		return page, strconv.Itoa(server) + " " + next, nil
	case server+1 < len(b.nodes):
		return page, strconv.Itoa(server+1) + " ", nil
	}
	return page, "", nil
}

func (n *node) scan(ctx context.Context, cursor, prefix string, limit int) ([]string, string, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectBudget/2)
	defer cancel()
	return n.tr.Scan(ctx, cursor, prefix, limit)
}

// page returns the locks among these keys that a majority has and that no page of a server before had.
func (b *Backend) page(ctx context.Context, server int, prefix string, keys []string) (page []distributed.Inspection, err error) {
	if len(keys) == 0 {
		_, err = b.look(ctx, []string{prefix}, 1) // a majority is there
		return nil, err
	}
	for len(keys) > 0 {
		some := keys[:min(len(keys), conn.MaxBatch)]
		keys = keys[len(some):]
		all, err := b.look(ctx, some, distributed.MaxNamed)
		if err != nil {
			return nil, err
		}
		for i, replies := range all {
			found := b.merge(some[i], replies)
			if time.Since(found.Since) > settledAfter && slices.ContainsFunc(replies[:server], func(r *reply) bool { return r != nil && r.Value != "" }) {
				continue
			}
			if !found.Held() || found.Foreign && found.Holders[0].Left < 0 {
				continue // a key that never expires is no lock
			}
			found.MoreHolders += len(found.Holders) - 1
			found.MoreWaiters += len(found.Waiters)
			found.Holders, found.Waiters = found.Holders[:1], nil
			page = append(page, found)
		}
	}
	return page, nil
}
