package redislock

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/redistest"
	"github.com/wllock/wllock/internal/testscope"
	"github.com/wllock/wllock/internal/testseed"
)

// mutants are scripts broken in one place each.
var mutants = []mutant{
	{"a leave that compares no tokens", "if holds(value, TOKEN) then\n  if isShared(value) then\n    local others", "if value then\n  if isShared(value) then\n    local others"},
	{"a quick leave that compares no tokens", "local ours = raw[1] and raw[2] and ARGV[3] == 'x' and string.sub(raw[1], 1, #ARGV[1]) == ARGV[1]", "local ours = raw[1] and raw[2] and ARGV[3] == 'x'"},
	{"a renewal that compares no tokens", "if not holds(value, TOKEN) then return 'lost' end", "if not value then return 'lost' end"},
	{"a renewal of many that compares no tokens", "if value and string.sub(value, 1, #token) == token then", "if value then"},
	{"a renewal without PEXPIRE", "else\n  redis.call('PEXPIRE', LOCK, ttl)", "else\n  redis.call('PTTL', LOCK)"},
	{"an enter that barges in", "if free and not state.queued then", "if free then"},
	{"an exclusive enter that overwrites prev with others queued", "if ARGV[3] == 'x' and (not raw[2] or #raw[2] <= 21) then", "if ARGV[3] == 'x' then"},
	{"a reader that passes waiters", "and not ours and not state.queued and room", "and not ours and room"},
	{"a fence that is not raised", "state.fence = plus(w.fence, block - 1)", "state.fence = w.fence"},
	{"fences that forget the last one", "return larger(larger(plus(last, 1), plus(seen, 1)), clock)", "return clock"},
	{"fences that ignore the clock", "return larger(larger(plus(last, 1), plus(seen, 1)), clock)", "return larger(plus(last, 1), plus(seen, 1))"},
	{"dead waiters that are not skipped", "if w and not dead(w, state, now) then", "if w then"},
	{"waiters that are dead at once", "if now - w.beat <= w.ttl / 3 + 100 then return false end", "if now - w.beat > 100 then return true end"},
	{"PUBLISH that is not asked", "return publish(w.process, 'p ' .. w.attempt .. ' 0') == 0 or silence > 2 * w.ttl", "return true"},
	{"dead waiters that stay", "removeFirst(rank)\n      return w", "return w"},
	{"a grant that leaves its place", "removeWaiter(w.instance)\n      state.fence = plus", "state.fence = plus"},
	{"a repeat of enter that is not recognised", "if holds(value, TOKEN) then\n  if isShared(value) then\n    addReader(me", "if false then\n  if isShared(value) then\n    addReader(me"},
	{"a repeat of enter that queues again", "again = w and w.attempt == attempt", "again = false"},
	{"a repeat of leave that is not recognised", "if raw[3] == ARGV[2] then return 'released' end", ""},
	{"a release that forgets who waits", " or #raw[2] > 21 then return 'other' end", " then return 'other' end"},
	{"a release of what another has", "if raw[1] ~= ARGV[1] or not raw[2]", "if not raw[2]"},
	{"a leave that is not noted", "redis.call('SET', DONE, a, 'PX', PAST)", "local _ = a"},
	{"a leave that is not noted because of a later attempt", "noteEnded('00' .. attempt, raw[3])", ""},
	{"an older attempt that is let in", "if raw[3] and tonumber(raw[3]) >= tonumber(ARGV[2]) then return 'old' end", ""},
	{"attempts compared as text", "tonumber(raw[3]) >= tonumber(ARGV[2])", "raw[3] >= ARGV[2]"},
	{"an older place that replaces a later one", "if w and tonumber(w.attempt) > tonumber(attempt) then return 'old' end", ""},
	{"a lock that expires with any reader", "redis.call('PEXPIRE', LOCK, w.window, 'GT')", "redis.call('PEXPIRE', LOCK, w.window)"},
	{"a repeat that shortens a claim", "redis.call('PEXPIRE', LOCK, window, 'GT') -- a copy", "redis.call('PEXPIRE', LOCK, window) -- a copy"},
	{"a heartbeat that shortens a claim", "redis.call('PEXPIRE', LOCK, window, 'GT') -- see", "redis.call('PEXPIRE', LOCK, window) -- see"},
	{"a lock deleted under other readers", "if others then", "if false then"},
	{"a lock that lasts as long as the last reader to leave", "latest and redis.call('PEXPIREAT', LOCK, latest, 'LT') == 1", "false"},
	{"readers of an earlier lock", "redis.call('DEL', READERS)\n      end", "end"},
	{"a prev taken from other readers", "ours, parted = not others, others", "ours = true"},
	{"a prev that is not released", "if ours and #list == 0 then redis.call('DEL', LOCK, READERS) end", ""},
	{"a lost prev that is not reported", "lost = 'lost '\n", ""},
	{"a released prev that is reported lost", "elseif before and not ARGV[10] and not again and (not raw[3] or tonumber(raw[3]) < tonumber(before)) then", "elseif before then"},
	{"a gap that is not left", "state.free = now + gap\n", "state.free = now\n"},
	{"a gap after prev that is not left", "if ours and gap > 0 then state.free = now + gap end", ""},
	{"a gap that heartbeats ignore", "if not value and not inGap(state, now) then -- missing", "if not value then -- missing"},
	{"a foreigner's lock that is overwritten", "return redis.call('SET', LOCK, value, 'NX', 'PX', window)", "return redis.call('SET', LOCK, value, 'PX', window)"},
	{"a quick enter over a foreigner's lock", "'PX', ARGV[4], 'NX')", "'PX', ARGV[4])"},
	{"a lock without TTL", "if how == 'overwrite' then return redis.call('SET', LOCK, value, 'PX', window) end", "if how == 'overwrite' then return redis.call('SET', LOCK, value) end"},
	{"a queue without TTL", "extendTTL(QUEUE, alone)", ""},
	{"a heartbeat that is not noted", "refreshPlace(state, now)\n", ""},
	{"a heartbeat that takes no free lock", "list = pop(state, time, 'free')\n  foreign", "foreign"},
	{"a heartbeat that enqueues", "or not redis.call('ZSCORE', QUEUE, instance) then return 'gone' end", "then redis.call('ZADD', QUEUE, 1, instance) end"},
	{"a place at the head", "math.max(last + 1, time[1] * 1e6 + time[2])", "-last"},
	{"a leave that wakes nobody", "list = pop(state, redis.call('TIME'), 'overwrite')", "list = list"},
	{"a waiter that leaves before others", "list = pop(state, time, 'free')\n  elseif", "list = list\n  elseif"},
	{"a state that forgets the queue", "save(state)\nlocal answer = place(", "state.queued = false\nsave(state)\nlocal answer = place("},
	{"a refill that reserves nothing", "state.fence = plus(fence, block - 1)\nsave(state)", "state.fence = fence\nsave(state)"},
	{"a grant that nobody is told of", "save(state)\n  noteEnded(attempt, raw[3])\n  announce(list, state)\n  if gap", "save(state)\n  noteEnded(attempt, raw[3])\n  if gap"},
	{"a holder that is not told of waiters", "if alone and not nowait and value and not ours then notifyHolders(value, 'w') end", ""},
	{"a holder that is not told of the last waiter's end", "if value and not state.queued then notifyHolders(value, 'u') end", ""},
	{"a holder that is not told when the last waiter reads instead", "if moved then notifyHolders(value, 'u') end", ""},
	{"an enter that leaves readers behind the place it left", "elseif isShared(value) and not ours and (moved or", "elseif isShared(value) and not ours and (false or"},
	{"a break that ends another's lease", "if not first or (isShared(value) and 'wllock:s:' .. first or value) ~= ARGV[8] then", "if not first then"},
	{"a break that grants the lock to nobody", "list = pop(state, time, 'overwrite')\nend\nif #list == 0 then redis.call('DEL', LOCK) end", "end\nredis.call('DEL', LOCK)"},
	{"a renewal that sees no waiters", "return 'held ' .. redis.call('EXISTS', QUEUE)", "return 'held 0'"},
	{"a downgrade that admits no readers", "if state.queued then list = pop(state, time, 'join', value) end", ""},
	{"a downgrade that admits writers", "list = pop(state, time, 'join', value) end", "list = pop(state, time, 'overwrite') end"},
	{"a downgrade that forgets itself", "value = addReader(me, millis(time), value)", ""},
	{"a downgrade that keeps readers of an earlier lock", "'overwrite')\n  redis.call('DEL', READERS)", "'overwrite')"},
	{"a downgrade that is made again", "if not isShared(value) then -- else", "if true then -- else"},
	{"a downgraded lease that is not recognised", "if isShared(value) then return redis.call('ZSCORE'", "if mode == 's' and isShared(value) then return redis.call('ZSCORE'"},
	{"a head that is not told that the lock expires sooner", "if sooner and state.queued then notifyHead(0) end\n      if #list", "if #list"},
	{"a head that is not told by an enter either", "if sooner and state.queued then notifyHead(0) end\nfor", "for"},
	{"a wrong rank", "redis.call('ZRANK', QUEUE, instance) or 0", "0"},
	{"a grant that says another T", "w.id, w.ttl, fence)", "w.id, w.ttl + 1, fence)"},
	{"readers that say another T", "'wllock:s:%d:%s', w.ttl, fence)", "'wllock:s:%d:%s', w.ttl - 1, fence)"},
	{"a longer reader that is not named", "if longest and longest < w.ttl then", "if false then"},
	{"a longer reader whose lock has no TTL", "redis.call('SET', LOCK, value, 'KEEPTTL')", "redis.call('SET', LOCK, value)"},
	{"a stretched lock that is left", "redis.call('PEXPIRE', LOCK, longest)", ""},
	{"a stretched lock that readers are left", "redis.call('PEXPIREAT', LOCK, cut(longest, now))", "cut(longest, now)"},
	{"stretched readers that are left", "redis.call('ZADD', READERS, latest, member)", ""},
	{"a lock cut to later than its readers", "return math.min(math.max(last, now + 1), latest)", "return latest"},
	{"a lock that is cut with readers left", "'LIMIT', 0, MOST", "'LIMIT', 0, 0"},
	{"a lock cut by the T of an earlier owner", "\n  value = redis.call('MGET', LOCK)[1] -- this", "\n  -- this"},
	{"dead waiters skipped without end", "skips = skips - 1", ""},
	{"skipped waiters that stay", "unfinished = true\n      removeFirst(rank)", "unfinished = true"},
	{"a waiter that does not go on", "if unfinished then return 'place 0 0 0' end", ""},
	{"a walk that is not said to be unfinished", "unfinished = true\n", ""},
	{"readers notified without end", "'ZRANGE', READERS, -MOST, -1", "'ZRANGE', READERS, 0, -1"},
	{"readers admitted without end", "#list < MOST and", ""},
	{"a reader that is not asked to go on", "if #list == MOST and state.queued then notifyHead(0) end", ""},
	{"a permit too many", "return redis.call('ZCARD', READERS) < most", "return redis.call('ZCARD', READERS) <= most"},
	{"permits that have expired and count", "redis.call('ZREMRANGEBYSCORE', READERS, '-inf', now)\n  return redis.call('ZCARD', READERS) < most", "return redis.call('ZCARD', READERS) < most"},
	{"an enter that takes a permit beside too many", "and not state.queued and room(limit, now) then\n  local fence, count = reserve(state, time, limit)\n  addReader(me, now, value)", "and not state.queued then\n  local fence, count = reserve(state, time, limit)\n  addReader(me, now, value)"},
	{"an enter that follows waiters beside too many", "and not state.queued and room(limit, now) then\n  local fence, count = reserve(state, time, limit)\n  addReader(me, now, redis", "and not state.queued then\n  local fence, count = reserve(state, time, limit)\n  addReader(me, now, redis"},
	{"a run of permits without end", "and room(w.limit, now) do", "do"},
	{"a leave that leaves a permit free", "if state.queued and headHasLimit() then", "if false then"},
	{"an enter that leaves a permit free", "or parted and state.queued and headHasLimit())", ")"},
	{"a permit whose fences are not reserved", "state.fence = plus(fence, count - 1)\n  return", "state.fence = fence\n  return"},
	{"a permit with one fence", "most and block or 1", "1"},
	{"a place that forgets its limit", "mode = mode, limit = limit, ttl", "mode = mode, ttl"},
	{"a head that does not look when a permit expires", "wait = untilRoom(wait, now)", "wait = wait"},
	{"holders that are not told of the last permit granted by a leave", "if #list > 0 and not state.queued then notifyHolders(value, 'u') end\n      return", "return"},
	{"holders that are not told of the last permit granted by an enter", "if (moved or #list > 0) and value", "if moved and value"},
	{"holders that are not told of the last permit granted by a heartbeat", "if value and #list > 0 and not state.queued then notifyHolders(value, 'u') end", ""},
	{"a caller that does not wait, whose holder is told of it", "if alone and not nowait and value", "if alone and value"},
	{"a holder that is not told of a refusal", "if refused and not state.told then", "if false then"},
	{"a holder that is told of each refusal", "if refused and not state.told then", "if refused then"},
	{"a holder that is not told because an earlier one was", "save(state)\n  if moved then", "save(state, state.told)\n  if moved then"},
	{"a reader that enters beside those it lets in, and is refused", "if joined then return lost .. joined end", ""},
	{"a head that an enter does not tell of the gap", "if ours and gap > 0 and state.queued then notifyHead(state.free - now) end", ""},
	{"a head that a leave does not tell of the gap", "\n  if gap > 0 and state.queued then notifyHead(state.free - now) end", ""},
	{"a new head that is not told of the gap", "if state.queued and resting then notifyHead(state.free - millis(time)) end", ""},
	{"a helper key without TTL", "redis.call('PEXPIRE', key, KEEP)", "redis.call('PTTL', key)"},
	{"the silence of the server, for which waiters are dead", "math.max(w.beat, state.since)", "w.beat"},
	{"an enter that waits behind too many", "others >= most", "others > most"},
	{"an enter that is refused its own place", "most and not w and", "most and"},
	{"an enter that waits though it would not", "if not nowait then\n", "if true then\n"},
	{"a reader's claim that is shortened", "redis.call('ZADD', READERS, 'GT', now", "redis.call('ZADD', READERS, now"},
	{"readers cut without end", "'LIMIT', 0, MOST", "'LIMIT', 0, 1000"},
	{"a quick enter in the same microsecond", "and (not raw[2] or us > raw[2]) then", "then"},
	{"a last waiter that is not asked to go on", "then notify(-1, 0) end", "then return end"},
}

// crowdMutants are broken in the crowd's way.
var crowdMutants = []mutant{
	{"a head that is dead", "or now - beat > t / 3 + 100 then", "then"},
	{"a head that reads", "'^(%d+) (%S+) x ([1-9]", "'^(%d+) (%S+) [xs] ([1-9]"},
	{"a fence that another has passed", "or us <= fence then", "then"},
	{"an attempt that has ended", "if not fence or raw[3] and (#raw[3] ~= #ended or raw[3] >= ended) then", "if not fence then"},
	{"a caller that has a place", "head == member or redis.call('HGET', KEYS[4], member)", "head == member"},
	{"a caller that would not wait", "0 (%d+) %-$'", "0 (%d+) %S$'"},
	{"an end that is not noted", "redis.call('SET', KEYS[6], ended, 'PX', past)", "local _ = past"},
	{"a place before others", "then ticket = us else", "then ticket = '1' else"},
	{"a silence that counts", "> math.min(T / 3, 1000) + 100 or tonumber(since) > now then", "> 1e9 then"},
	{"a grant for longer", "string.format('%d', t / 2)", "t"},
	{"a grant that keeps its place", "redis.call('HDEL', KEYS[4], head)", ""},
	{"a grant that says nobody waits", "(queued > 0 and 1 or 0)", "0"},
	{"a queue that is forgotten", "if queued > 0 then", "if queued > 1 then"},
	{"a heartbeat of another's place", "or '', 1, #entry) ~= entry then", "or '', 1, 0) ~= '' then"},
	{"a heartbeat of a stretched lock", " or left > tonumber(longest)", ""},
	{"a heartbeat that is not noted", "  refresh(queue, waiters, member, entry, ms, keep)\n  redis.call('SET', KEYS[i", "  redis.call('SET', KEYS[i"},
}

type mutant struct{ what, old, broken string }

// mostSequences is so many that no mutant is missed by chance: the rarest are found by one sequence in thousands.
const mostSequences = 300_000

// finds has the mutant of a server found by one of so many sequences.
func finds(t *testing.T, k *scriptServer, seed, total uint64) {
	t.Helper()
	f := newScriptFuzz(seed, total)
	f.run(k)
	require.NotNil(t, f.failed, "not found by %d sequences", total)
	t.Logf("found by sequence %d: %s", f.failed.index, f.failed.failure)
}

// TestBrokenScriptsAreFound shows that TestScriptsHoldInAnyOrder fails when a line of a script is wrong: each time for
// another eighth of the lines, in `make test-long` all of them.
func TestBrokenScriptsAreFound(t *testing.T) {
	testscope.Long(t, "mutants: every line of the scripts is broken")
	seed := testseed.Seed(t)
	server, clock := redistest.StartWithClock(t, simEpoch)
	all := slices.Clone(mutants)
	rnd := rand.New(rand.NewPCG(seed, 0))
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = testscope.Scale(all[:len(all)/8], all) // others each time
	for _, m := range all {
		t.Run(strings.ReplaceAll(m.what, " ", "_"), func(t *testing.T) {
			server.Do("FLUSHALL") // the clock begins anew
			finds(t, newScriptServer(t, server, clock, m), seed, mostSequences)
		})
	}
}

// TestABrokenCrowdIsFound shows that TestTheCrowdIsServedAsByTheGeneralPart fails when a line of the crowd's way is wrong.
func TestABrokenCrowdIsFound(t *testing.T) {
	testscope.Long(t, "mutants: the lines of the crowd's way are broken")
	seed := testseed.Seed(t)
	one, clock := redistest.StartWithClock(t, simEpoch)
	two, twinClock := redistest.StartWithClock(t, simEpoch)
	for _, m := range crowdMutants {
		t.Run(strings.ReplaceAll(m.what, " ", "_"), func(t *testing.T) {
			one.Do("FLUSHALL") // the clocks begin anew
			two.Do("FLUSHALL")
			k := newScriptServer(t, one, clock, m)
			k.twin = newScriptServer(t, two, twinClock, mutant{}, general)
			finds(t, k, seed, mostSequences/10)
		})
	}
}

// TestBrokenScriptsAreScripts shows that each of them can be run, since the test above runs a part of them.
func TestBrokenScriptsAreScripts(t *testing.T) {
	server := redistest.Start(t)
	for _, m := range slices.Concat(mutants, crowdMutants) {
		newScriptServer(t, server, nil, m)
	}
}
