package redlock

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/wllock/wllock/distributed"
	"github.com/wllock/wllock/internal/conn"
	"github.com/wllock/wllock/internal/keyless"
)

// brokenKey is where a server remembers the last Break of a lock.
func brokenKey(key string) string { return helper("b:", key) }

// broken is a record as servers keep it, behind the tokens that it has ended there.
type broken struct {
	ID string
	distributed.Breaking
}

// readBroken reads a record; nil: there is none.
func readBroken(text string) *distributed.Breaking {
	_, record, _ := strings.Cut(text, "\n")
	var kept broken
	if record == "" || json.Unmarshal([]byte(record), &kept) != nil {
		return nil
	}
	return &kept.Breaking
}

// Break implements distributed.Inspector. It asks every server, even one that has not voted for the holder, to take back the votes, to reserve a
// fence above the holder's, and not to vote for the holder again. The holder has lost the lock when a majority has answered (rule Q10). A
// minority does not undo what it has done, so Break can be repeated after an error.
func (b *Backend) Break(ctx context.Context, found distributed.Inspection, by, reason string) (distributed.Breaking, error) {
	record, err := distributed.NewBreaking(found, by, reason)
	if err == nil {
		err = checkKey(found.Key)
	}
	if err != nil {
		return record, err
	}
	known, err := b.look(ctx, []string{found.Key}, 0) // the fences, and the clocks
	if err != nil {
		return record, err
	}
	record.At = time.Now()
	if b.fences {
		record.Fence = breakFence(known[0])
	}
	said, err := b.breaks(ctx, found, &record)
	if err != nil {
		return record, err
	}
	switch judgeBreak(len(b.nodes), said["answered"], said["broken"], said["high"]) {
	case higher:
		return record, b.unavailable("break", keyless.Errorf("the servers' fences have changed: try again"))
	case refused:
		return record, keyless.Errorf("redlock: break: %w", distributed.ErrNotHeld)
	}
	b.log.Warn("redlock: a lease was ended by force", "holder", record.Holder, "by", by, "fence", record.Fence)
	return record, nil
}

// breakFence is above all that the servers have reserved, or have forgotten because their clocks have passed it.
func breakFence(known []*reply) (fence uint64) {
	for _, r := range known {
		if r != nil {
			clock := time.UnixMilli(number(r.Now)).Add(fenceLead)
			fence = max(fence, uint64(clock.UnixNano()), uint64(number(r.Fence))+1)
		}
	}
	return fence
}

// breaks asks all servers, and counts what they say.
func (b *Backend) breaks(ctx context.Context, found distributed.Inspection, record *distributed.Breaking) (map[string]int, error) {
	c, err := b.breakCall(found, record)
	if err != nil {
		return nil, err
	}
	answers, err := b.everybody(ctx, "break", ask{Call: c, in: b.space(conn.SystemOf(found.Key)), lane: laneOf(found.Key)})
	said := map[string]int{}
	for _, word := range answers {
		if word != "" {
			said[word]++
			said["answered"]++
		}
	}
	return said, err
}

func (b *Backend) breakCall(found distributed.Inspection, record *distributed.Breaking) (conn.Call, error) {
	a := b.stray(tokenOf(b.nextID(), b.process), found.Key)
	a.keys = append(a.keys, brokenKey(found.Key), fenceKey(found.Key))
	text, err := json.Marshal(broken{a.token, *record})
	if err != nil {
		return conn.Call{}, err
	}
	fence := ""
	if record.Fence > 0 {
		fence = fence19(record.Fence)
	}
	return a.call(breakScript, modeLetter(distributed.Exclusive), 0, found.State, string(text), millis(distributed.BrokenMemory), fence,
		millis(max(fenceMemory, 4*b.longestTTL(a.in)))), nil
}
