-- What all scripts share. The Go side replaces their include lines with such parts. Rules R1 to R19 stand in doc.go. Keys, values and
-- messages are of format 2, see docs/redis.md.
--
-- KEYS  1 lock     string   the lock's own name: "wllock:x:<id>:<T in ms>:<fence>", "wllock:s:<longest T of the readers in
--                           ms>:<generation>", both without T if an older version wrote it, or a foreigner's
--       2 state    string   "<last fence reserved>", or "<microsecond>" if that is the last fence of a microsecond, 999;
--                           then, if needed, " <1: somebody is queued> <ms since 1970 until which the lock stays free>",
--                           and if somebody is, " <ms of the last script> <ms from when on silence of waiters counts>".
--                           Or " 0" alone: an enter that takes no place has told the lock's holder (rule T12)
--       3 queue    zset     instance -> ticket: us since 1970 when it queued, or one more than the last (older versions: that alone)
--       4 waiters  hash     instance -> "<attempt> <process> <mode> <ttl ms> <ms of its last heartbeat>". Older versions do not know
--                           the mode of a permit, and drop such an entry: its instance queues anew (rule R18)
--       5 readers  zset     id -> ms since 1970 when it expires; valid only while the lock says "s" (rule R11)
--       6 done     string   the latest attempt of this instance that has ended; before it a 0 if it held nothing, or
--                           00 if a later one had come first, and may have released what it held
-- ARGV  1 token     "wllock:x:<process>:<attempt>:<instance>:", which an exclusive lock's value begins with
--       2 attempt   digits: grows with every enter of a process, and ends with random ones. Lua numbers tell which of two is the
--                   later one, and texts whether they are the same
--       3 mode      "x" exclusive, "s" shared, "s<limit>" a permit (rule R18); "xg" if gap is not 0
--       4 window    ms; what a fresh grant gets
--       5 keep      ms; how long helper keys outlive their last use: at least a minute, so that the order of fences survives
--                   a clock set back by less; at least four TTLs, so that a queue survives a server that is silent for a
--                   while
--       6 settings  "<T in ms; with enter and heartbeat twice the window, if that is more: a place gets half of it>
--                   <1: PUBLISH counts all receivers (no cluster)> <how many fences to reserve; 1000 with enter>
--                   <gap: ms for which a released lock is left free for foreigners> <past: ms for which an attempt that
--                   has ended is remembered> <how many others may be queued for enter to take a place; "-": any number>"
--       7 seen      the largest fence this process knows of
-- The process says where messages go: channel "wllock:<system>:<process>", whose beginning is that of the helper keys (rule R19). An id,
-- "<process>:<attempt>:<instance>", names a grant.
-- Every reply is one string of words. On the hot path texts are passed on as they came: formatting a number, or joining
-- strings, costs the server about as much as running a command.
local LOCK, STATE, QUEUE, WAITERS, READERS, DONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local TOKEN, attempt, mode, window, KEEP, seen = ARGV[1], ARGV[2], string.sub(ARGV[3], 1, 1), tonumber(ARGV[4]), ARGV[5], ARGV[7]
local limit = tonumber(string.sub(ARGV[3], 2)) -- nil: none
local function idof(token) return string.sub(token, 10, -2) end
local id = idof(TOKEN)
local process, instance = string.match(id, '^([^:]+):%d+:([^:]+)$')
local ttl, single, block, gap, PAST, most = string.match(ARGV[6], '^(%d+) ([01]) (%d+) (%d+) (%d+) (%S+)$')
ttl, single, block, gap, most = tonumber(ttl), single == '1', tonumber(block), tonumber(gap), tonumber(most) -- most: nil is any number

-- A fence is an int64 of nanoseconds and does not fit the 53 bits of a Lua number (rule R9). It is a string of 19 digits,
-- which compare like the numbers, and is added to in two halves: seconds, and nanoseconds.
local ZERO = '0000000000000000000'
local function plus(fence, n)
  local s, ns = tonumber(string.sub(fence, 1, 10)), tonumber(string.sub(fence, 11)) + n
  if ns >= 1e9 then s, ns = s + 1, ns - 1e9 end
  return string.format('%010d%09d', s, ns)
end
local function larger(a, b) if a > b then return a end return b end

-- nextfence is above all that was reserved and all that the caller has seen, and not below the server's clock, which
-- stands in for lost data (rule R9).
local function nextfence(last, time)
  local clock = string.format('%010d%06d000', time[1], time[2])
  return larger(larger(plus(last, 1), plus(seen, 1)), clock)
end
local function millis(time) return time[1] * 1000 + math.floor(time[2] / 1000) end

local function load(raw)
  local fence, queued, free, last, since = string.match(raw or '', '^(%d+) ?([01]?) ?(%d*) ?(%d*) ?(%d*)$')
  if fence and #fence == 16 then fence = fence .. '999' end
  return {fence = fence or ZERO, queued = queued == '1', free = tonumber(free) or 0, last = tonumber(last) or 0, since = tonumber(since) or 0,
    told = queued == '0' and free == ''}
end

-- save keeps the state for as long as its caller's TTL needs. That it may be shorter than another's does no harm: the
-- clock stands in for a lost fence, and each heartbeat notes anew that somebody is queued. told: that the holder has been told
-- goes with the lock's next holder, and any script that does not say it again.
local function save(state, told)
  local more = ''
  if state.queued then
    more = string.format(' 1 %d %d %d', state.free, state.last, state.since)
  elseif told then
    more = ' 0'
  elseif state.free > 0 then
    more = string.format(' 0 %d', state.free)
  end
  redis.call('SET', STATE, state.fence .. more, 'PX', KEEP)
end

-- inGap reports that the lock is still left free for foreigners (rule R12): no longer than for the gap, because the clock
-- may have been set back since.
local function inGap(state, now)
  state.free = math.min(state.free, now + gap)
  return now < state.free
end

-- extendTTL lets a key outlive its last use for as long as the longest lease needs that uses it: a set of readers that
-- expired with the shortest would admit a writer beside one of the others. new: the key has no TTL yet.
local function extendTTL(key, new)
  if new or redis.call('PEXPIRE', key, KEEP, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, KEEP)
  end
end

-- noteEnded notes that an attempt has ended: its enter, arriving late, changes nothing any more, and a repeated leave gets
-- the first answer (rule R1).
local function noteEnded(a, known)
  if not known or tonumber(known) < tonumber(a) then
    redis.call('SET', DONE, a, 'PX', PAST)
  end
end

-- ownerTTL is T of the owner of the lock with this value, or the longest T of the readers; nil if the value does not say.
local function ownerTTL(value)
  if not value then return nil end
  return tonumber(string.match(value, '^wllock:x:[^:]+:%d+:[^:]+:(%d+):%d+$') or string.match(value, '^wllock:s:(%d+):%d+$'))
end

local function isShared(value) return value and string.sub(value, 1, 9) == 'wllock:s:' end
-- formatOf is the number of another format that a lock's value is of, or nil.
local function formatOf(value) return string.match(value or '', '^wllock(%d+):') end

local function isForeign(value) return value and string.sub(value, 1, 7) ~= 'wllock:' end

-- laterOwns reports that a later attempt of this instance owns the lock with this value.
local function laterOwns(value)
  local p, a, i = string.match(value or '', '^wllock:x:([^:]+):(%d+):([^:]+):')
  return p == process and i == instance and tonumber(a) > tonumber(attempt)
end

-- holds reports that the owner of the token, the full one and never the instance alone, has the lock with this value
-- (rule R2). The value says how: an exclusive lease may have become a shared one (rule R11).
local function holds(value, token)
  if not value then return false end
  if isShared(value) then return redis.call('ZSCORE', READERS, idof(token)) and true end
  return string.sub(value, 1, #token) == token
end
