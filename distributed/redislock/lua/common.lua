-- What all scripts share. The Go side puts it in place of their include line.
--
-- KEYS  1 lock     string   the lock's own name: "wllock:x:<id>:<fence>", "wllock:s:<generation>", or a foreigner's
--       2 state    string   "<last fence reserved> <1: somebody is queued> <ms since 1970 before which the lock stays free>"
--       3 queue    zset     instance -> ticket
--       4 waiters  hash     instance -> "<attempt> <process> <mode> <ttl ms> <ms of its last heartbeat>"
--       5 readers  zset     id -> ms since 1970 when it is over; means something only while the lock says "s"
--       6 done     string   the latest attempt of this instance that is over
-- ARGV  1 process  where notices go: channel "wllock:<process>"
--       2 attempt  grows with every enter of a process
--       3 instance
--       4 mode     x exclusive, s shared
--       5 ttl      T in ms; a fresh grant gets half of it
--       6 single   1: PUBLISH counts all receivers (no cluster)
--       7 seen     the largest fence this process knows of
--       8 block    how many fences to reserve; 1000 with enter
--       9 gap      ms for which a released lock is left free for foreigners
-- An id is "<process>:<attempt>:<instance>" and with it the full token of a grant.
local LOCK, STATE, QUEUE, WAITERS, READERS, DONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local process, attempt, instance, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ttl, single, seen = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7]
local block, gap = tonumber(ARGV[8]), tonumber(ARGV[9])
local id = process .. ':' .. attempt .. ':' .. instance

-- Helper keys outlive their last use by this long: a minute, so that the order of fences survives a clock set back by
-- less; four leases, so that a queue survives a server that does not answer for a while.
local KEEP = math.max(60000, 4 * ttl)

-- A fence is an int64 of nanoseconds and does not fit the 53 bits of a Lua number. It is a string of 19 digits, which
-- compare like the numbers, and is counted in two halves: seconds, and nanoseconds.
local ZERO = '0000000000000000000'
local function plus(fence, n)
  local s, ns = tonumber(string.sub(fence, 1, 10)), tonumber(string.sub(fence, 11)) + n
  if ns >= 1e9 then s, ns = s + 1, ns - 1e9 end
  return string.format('%010d%09d', s, ns)
end
local function larger(a, b) if a > b then return a end return b end

-- nextfence is above all that was reserved, all the caller has seen, and not below the server's clock, which stands in
-- for what was lost.
local function nextfence(last, time)
  local clock = string.format('%010d%06d000', time[1], time[2])
  return larger(larger(plus(last, 1), plus(seen, 1)), clock)
end
local function millis(time) return time[1] * 1000 + math.floor(time[2] / 1000) end

local function load(raw)
  local fence, queued, free = string.match(raw or '', '^(%d+) ([01]) (%d+)$')
  return {fence = fence or ZERO, queued = queued == '1', free = tonumber(free or 0)}
end
local function save(state)
  redis.call('SET', STATE, string.format('%s %d %d', state.fence, state.queued and 1 or 0, state.free), 'PX', KEEP)
end

-- over notes that this attempt is over: its enter, arriving late, changes nothing any more, and leaving again is fine.
local function over(a, known)
  if not known or tonumber(known) < tonumber(a) then
    redis.call('SET', DONE, a, 'PX', math.max(2 * ttl, 10000))
  end
end

local function shared(value) return value and string.sub(value, 1, 9) == 'wllock:s:' end
local function foreign(value) return value and string.sub(value, 1, 7) ~= 'wllock:' end

-- holds tells whether the id owns the lock with this value.
local function holds(value, owner, how)
  if not value then return false end
  if how == 's' then return shared(value) and redis.call('ZSCORE', READERS, owner) and true end
  local token = 'wllock:x:' .. owner .. ':'
  return string.sub(value, 1, #token) == token
end
