package sqllock

// The statements, as templates: see query, and statements.text. Names of tables are in braces, and words of the dialect.

// The arguments of acquire, again and queueUp, in this order.
//
//	1 name  2 full name  3 token  4 prev's token  5 mode  6 TTL  7 window  8 fences  9 prev's last fence  10 the last one it has drawn
//	11 instance

// upsert takes the lock if it is free and nobody is queued, or if the owner is this request already: a repeat after a lost answer
// finds what the first one has done, and the fence of then (rule D4). The row's lock decides between two callers; the conditions
// are on the row alone, which is read again when it was locked (rule D3). A subquery would see what was there when the statement
// began.
// prior: who was the owner, for a repeat of this statement alone. Transactions leave it as it is: see claim.
// fence: the unused rest of prev's block is taken back if nobody has had a fence since. A repeat of a shared request gets new ones, for
// others may have had some since.
const upsert = `INSERT INTO {locks} AS l (name, full_name, owner, mode, ttl, fence, expires_at, instance, since, update_time)
VALUES ($1, $2, $3, $5, $6, {now} * 1000 + $8, {now} + $7, $11, {now}, {now})
ON CONFLICT (name) DO UPDATE SET
  prior = CASE WHEN l.owner = $3 THEN l.prior ELSE l.owner END,
  fence = CASE WHEN l.owner = $3 AND l.mode = 0 THEN l.fence WHEN l.owner = $3 THEN l.fence + $8 ELSE
    {greatest}({now} * 1000, CASE WHEN l.owner = $4 AND l.fence = $9 THEN $10 ELSE l.fence END) + $8 END,
  owner = $3, mode = $5, ttl = $6, expires_at = {now} + $7, instance = $11, since = {now}, update_time = {now}
WHERE l.owner = $3 OR l.queued = 0 AND l.members = 0 AND (l.owner = '' OR l.owner = $4 OR l.expires_at <= {now})
RETURNING fence, prior, queued`

// again is upsert for a row that is there, as it is for every key but a new one: an UPDATE by the primary key costs the databases
// far less.
const again = `UPDATE {locks} AS l SET
  prior = CASE WHEN l.owner = $3 THEN l.prior ELSE l.owner END,
  fence = CASE WHEN l.owner = $3 AND l.mode = 0 THEN l.fence WHEN l.owner = $3 THEN l.fence + $8 ELSE
    {greatest}({now} * 1000, CASE WHEN l.owner = $4 AND l.fence = $9 THEN $10 ELSE l.fence END) + $8 END,
  full_name = $2, owner = $3, mode = $5, ttl = $6, expires_at = {now} + $7, instance = $11, since = {now}, update_time = {now}
WHERE l.name = $1 AND (l.owner = $3 OR l.queued = 0 AND l.members = 0 AND (l.owner = '' OR l.owner = $4 OR l.expires_at <= {now}))
RETURNING fence, prior, queued`

// mysqlUpsert is upsert without RETURNING. The answer comes as the insert id, which LAST_INSERT_ID(x) sets and returns (MySQL's manual,
// "Information Functions"): twice the fence, plus 1 if prev was the owner; 0: not taken. Assignments are carried out from left to
// right, or at once with the sql_mode SIMULTANEOUS_ASSIGNMENT: either way those before that of the owner see the old one, and after
// it the condition is true of the new owner.
const mysqlUpsert = `INSERT INTO {locks} (name, full_name, owner, mode, ttl, fence, expires_at, instance, since, update_time)
VALUES ($1, $2, $3, $5, $6,
  LAST_INSERT_ID(({now} * 1000 + $8) * 2) DIV 2, {now} + $7, $11, {now}, {now})
ON DUPLICATE KEY UPDATE
  fence = IF(` + mysqlFree + `, ` + mysqlFence + `, fence + LAST_INSERT_ID(0)),
  prior = IF(owner <> $3 AND ` + mysqlFree + `, owner, prior),
  owner = IF(` + mysqlFree + `, $3, owner),
  mode = IF(` + mysqlFree + `, $5, mode),
  ttl = IF(` + mysqlFree + `, $6, ttl),
  expires_at = IF(` + mysqlFree + `, {now} + $7, expires_at),
  instance = IF(` + mysqlFree + `, $11, instance), since = IF(` + mysqlFree + `, {now}, since),
  update_time = IF(` + mysqlFree + `, {now}, update_time)`

// mysqlAgain is again, with the answer as in mysqlUpsert.
const mysqlAgain = `UPDATE {locks} SET fence = ` + mysqlFence + `, prior = IF(owner = $3, prior, owner),
  owner = $3, mode = $5, ttl = $6, expires_at = {now} + $7, instance = $11, since = {now}, update_time = {now}
WHERE name = $1 AND ` + mysqlFree

// mysqlFence is the new fence, and sets the answer. An argument is compared with no text that stands here: they can have collations that
// do not go together.
const mysqlFence = `LAST_INSERT_ID(IF(owner = $3, fence + IF(mode = 0, 0, $8), GREATEST({now} * 1000, IF(owner = $4 AND fence = $9, $10, fence)) + $8) * 2
    + (LENGTH($4) > 0 AND IF(owner = $3, prior, owner) = $4)) DIV 2`

const mysqlFree = `(owner = $3 OR queued = 0 AND members = 0 AND (owner = '' OR owner = $4 OR expires_at <= {now}))`

const (
	// release: 1 name  2 token  3 the last fence of its block  4 the last one it has drawn. fence before owner, for MySQL.
	release = `UPDATE {locks} SET fence = CASE WHEN fence = $3 THEN $4 ELSE fence END, owner = '', update_time = {now}
WHERE name = $1 AND owner = $2`

	// releaseMany is release for several, and releasable those of their rows that nobody else has locked. No assignment sees another one, for
	// MySQL: the rest of a block is known by the name.
	releasedMany = `fence = CASE{cases} ELSE fence END, owner = '', update_time = {now}`
	ofReleased   = ` WHERE name IN ({names}) AND owner IN ({tokens})`
	releaseMany  = `UPDATE {locks}{by name} SET ` + releasedMany + ofReleased
	releasable   = `SELECT name AS id, owner AS token FROM {locks}{by name}` + ofReleased

	load = `SELECT owner, mode, ttl, fence, expires_at, ticket, instance, since, queued, members, {now}{bound} FROM {locks} WHERE name = $1{lock}`

	entries = `SELECT ticket, token, mode, state, ttl, fence, expires_at, instance, since FROM {waiters} WHERE name = $1 ORDER BY ticket{all}`

	store = `UPDATE {locks} SET owner = $2, mode = $3, ttl = $4, fence = $5, expires_at = $6, ticket = $7, queued = $8,
members = $9, instance = $10, since = $11, update_time = {now} WHERE name = $1`

	add = `INSERT INTO {waiters} (name, ticket, token, mode, state, ttl, fence, expires_at, instance, since)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

	alter = `UPDATE {waiters} SET state = $3, fence = $4, expires_at = $5, since = $6 WHERE name = $1 AND ticket = $2`

	peek = `SELECT l.owner, l.mode, l.ttl, l.expires_at - {now}, l.instance, l.members, CASE WHEN l.members = 0 THEN 0 ELSE
  (SELECT COUNT(*) FROM {waiters} w WHERE w.name = l.name AND w.state = 1 AND w.expires_at > {now} AND w.expires_at <= {now} + w.ttl) END
FROM {locks} l WHERE l.name = $1`

	drop = `DELETE FROM {waiters} WHERE token IN ({list})`

	renewed = `expires_at = {now} + ttl, update_time = {now}`
	renew   = `UPDATE {locks}{by name} SET ` + renewed + ` WHERE name IN ({list}) AND owner IN ({list})`

	renewedSeat  = `expires_at = {now} + ttl`
	renewMembers = `UPDATE {waiters}{by token} SET ` + renewedSeat + ` WHERE token IN ({list}) AND state = 1`

	// owned are the rows of owners, and seated those of readers beside them: see ofUnlocked.
	owned  = `SELECT name AS id FROM {locks}{by name} WHERE name IN ({list}) AND owner IN ({list})`
	seated = `SELECT token AS id FROM {waiters}{by token} WHERE token IN ({list}) AND state = 1`
	// seatQueued is how many wait for the lock of a seat.
	seatQueued = `COALESCE((SELECT o.queued FROM {locks} o WHERE o.name = l.name), 0)`

	// beat: three heartbeats make T/2.
	beat = `UPDATE {waiters}{by token} SET expires_at = {now} + ttl / 2 WHERE token IN ({list}) AND state = 0`

	// places tells of each place how many wait before it, how long those that hold the lock still can, and whether a right there
	// seems to last longer than its TTL.
	places = `SELECT w.token, w.state, l.owner, l.mode, l.expires_at - {now},
  (SELECT COALESCE(MAX(m.expires_at), 0) - {now} FROM {waiters} m WHERE m.name = w.name AND m.state = 1),
  (SELECT COUNT(*) FROM {waiters} b WHERE b.name = w.name AND b.ticket < w.ticket AND b.state = 0 AND b.expires_at > {now}),
  (SELECT COUNT(*) FROM {waiters} x WHERE x.name = w.name AND x.ticket < w.ticket AND x.state = 0 AND x.expires_at > {now} AND x.mode = 0),
  CASE WHEN l.owner <> '' AND l.expires_at > {now} + l.ttl
    OR EXISTS (SELECT 1 FROM {waiters} o WHERE o.name = w.name AND o.expires_at > {now} + o.ttl) THEN 1 ELSE 0 END, l.instance, l.members,
  CASE WHEN w.mode = 0 THEN 0 ELSE (SELECT COUNT(*) FROM {waiters} s WHERE s.name = w.name AND s.state = 1 AND s.expires_at > {now}) END,
  CASE WHEN w.mode = 0 THEN 0 ELSE
    (SELECT COALESCE(MIN(s.expires_at), {now}) - {now} FROM {waiters} s WHERE s.name = w.name AND s.state = 1 AND s.expires_at > {now}) END,
  CASE WHEN w.mode = 0 THEN 0 ELSE COALESCE(` + tightest + `, 0) END
FROM {waiters} w JOIN {locks} l ON l.name = w.name WHERE w.token IN ({list}){all}`

	// tightest is the least limit of a waiter and of those before it. The fence of one that waits is its limit.
	tightest = `(SELECT MIN(p.fence) FROM {waiters} p WHERE p.name = w.name AND p.state = 0 AND p.fence > 0 AND p.ticket <= w.ticket AND p.expires_at > {now})`

	// leases tells who owns a lock, whether somebody waits for it, and whether readers share it.
	leases = `SELECT name, owner, queued, members FROM {locks} WHERE name IN ({list}){all}`

	// owners is leases without the names, and seats that for those that share a lock beside its owner.
	owners = `SELECT owner, queued, expires_at FROM {locks} WHERE name IN ({list}){all}`
	seats  = `SELECT w.token, l.queued, w.expires_at FROM {waiters} w JOIN {locks} l ON l.name = w.name WHERE w.token IN ({list}) AND w.state = 1{all}`
)

// heads are the waiters that may enter when these locks have no owner: the readers that come first, as far as limits admit them (the
// rule is line.turn's), and the first that is none.
const heads = `SELECT w.name, w.token FROM {waiters} w WHERE w.state = 0 AND w.expires_at > {now} AND w.ticket <= (
  SELECT COALESCE(MIN(x.ticket), 9223372036854775807) FROM {waiters} x
  WHERE x.name = w.name AND x.state = 0 AND x.mode = 0 AND x.expires_at > {now})
  AND (w.mode = 0 OR COALESCE(` + tightest + `, 9223372036854775807) > (
    SELECT COUNT(*) FROM {waiters} s WHERE s.name = w.name AND s.expires_at > {now} AND (s.state = 1 OR s.ticket < w.ticket)))`

// pgNotify is the same as notify, for the rows of heads.
const pgNotify = "pg_notify('wllock_' || lower(split_part(h.token, '.', 1)), h.token)"

// unflushed has PostgreSQL commit the statement without waiting for the disk, or for standbys (rule D5), and so keep its rows locked for less
// time. It is always 0.
const unflushed = `(SELECT 0 * length(set_config('synchronous_commit', 'off', true)))`

const (
	// releaseOwners is release for any number of owners of PostgreSQL's. The arrays: 1 names  2 tokens  3 the last fences of their blocks  4 the
	// last that they have drawn
	releaseOwners = `WITH r AS (
  UPDATE {locks} l SET fence = CASE WHEN l.fence = o.last THEN o.drawn ELSE l.fence END, owner = '', update_time = {now}
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS o (name, token, last, drawn)
  WHERE l.name = o.name COLLATE "C" AND l.owner = o.token COLLATE "C" RETURNING l.name, l.queued)`

	releaseSilently = releaseOwners + ` SELECT name, queued, 0, ` + unflushed + ` FROM r`

	// releaseLoudly notifies the heads of their queues. Where no queue is, none is looked for.
	releaseLoudly = releaseOwners + `, h AS (` + heads + ` AND w.name IN (SELECT name FROM r WHERE queued > 0))
SELECT r.name, r.queued, CASE WHEN r.queued > 0 THEN (SELECT COUNT(` + pgNotify + `) FROM h WHERE h.name = r.name) ELSE 0 END,
  ` + unflushed + ` FROM r`

	headsNotified = `SELECT ` + pgNotify + ` FROM (` + heads + ` AND w.name IN ({list})) h`
)

// queueUp is upsert that takes a place if the lock is not free, and releases prev also then. Who had its reply lost and asks again
// violates the uniqueness of its token; the transaction then finds the first one's place. prior is the own token if prev was
// released without the lock being taken: there is no other way to tell it. The arguments are those of acquire.
const queueUp = `WITH l AS (
  INSERT INTO {locks} AS l (name, full_name, owner, mode, ttl, fence, expires_at, instance, since, update_time)
  VALUES ($1, $2, $3, $5, $6, {now} * 1000 + $8, {now} + $7, $11, {now}, {now})
  ON CONFLICT (name) DO UPDATE SET
    prior = CASE WHEN l.owner = $3 THEN l.prior WHEN ` + isFree + ` THEN l.owner WHEN l.owner = $4 THEN $3 ELSE l.prior END,
    fence = CASE WHEN l.owner = $3 THEN l.fence
      WHEN ` + isFree + ` THEN {greatest}({now} * 1000, CASE WHEN l.owner = $4 AND l.fence = $9 THEN $10 ELSE l.fence END) + $8
      WHEN l.owner = $4 AND l.fence = $9 THEN $10 ELSE l.fence END,
    owner = CASE WHEN ` + isFree + ` THEN $3 WHEN l.owner = $4 THEN '' ELSE l.owner END,
    mode = CASE WHEN ` + isFree + ` THEN $5 ELSE l.mode END,
    ttl = CASE WHEN ` + isFree + ` THEN $6 ELSE l.ttl END,
    expires_at = CASE WHEN ` + isFree + ` THEN {now} + $7 ELSE l.expires_at END,
    instance = CASE WHEN ` + isFree + ` THEN $11 ELSE l.instance END,
    since = CASE WHEN ` + isFree + ` THEN {now} ELSE l.since END,
    ticket = CASE WHEN ` + isFree + ` THEN l.ticket ELSE l.ticket + 1 END,
    queued = CASE WHEN ` + isFree + ` THEN l.queued ELSE l.queued + 1 END,
    update_time = {now}
  RETURNING name, owner, prior, fence, queued, ticket, CASE WHEN owner = '' THEN '' ELSE instance END AS holder, members),
w AS (
  INSERT INTO {waiters} (name, ticket, token, mode, state, ttl, expires_at, instance, since)
  SELECT name, ticket, $3, $5, 0, $6, {now} + $7, $11, {now} FROM l WHERE owner <> $3)`

// isFree is the condition of upsert, by the time at which the statement began: it is asked for each column, and a lease that expired
// between two of them would be taken with the fences of before.
const isFree = `(l.owner = $3 OR l.queued = 0 AND l.members = 0 AND (l.owner = '' OR l.owner = $4
  OR l.expires_at <= (date_part('epoch', statement_timestamp()) * 1000000)::bigint))`

const (
	queueUpSilently = queueUp + `
SELECT owner = $3, fence, prior, queued, holder, members, 0` + placeUnflushed + ` FROM l`

	// queueUpLoudly notifies those that may enter, if prev was released; and if it is the first that waits, the holders.
	queueUpLoudly = queueUp + `, h AS (
  ` + heads + ` AND w.name IN (SELECT name FROM l WHERE prior = $3)
  UNION ALL SELECT name, owner FROM l WHERE queued = 1 AND owner NOT IN ('', $3)
  UNION ALL SELECT m.name, m.token FROM {waiters} m JOIN l ON l.name = m.name WHERE l.queued = 1 AND m.state = 1)
SELECT owner = $3, fence, prior, queued, holder, members, (SELECT COUNT(` + pgNotify + `) FROM h)` + placeUnflushed + ` FROM l`

	placeUnflushed = ` + CASE WHEN owner = $3 THEN 0 ELSE ` + unflushed + ` END`
)

// takeFirst gives the lock to a waiter if no row of another is before its own, be it alive or not. Those that were queued before it
// are seen, for they were committed before. If its own row has gone meanwhile, because it was left or taken for dead,
// the division by zero undoes it all. 1 name  2 token  3 fences
const takeFirst = `WITH t AS (
  UPDATE {locks} l SET owner = $2, mode = 0, ttl = w.ttl, fence = {greatest}({now} * 1000, l.fence) + $3,
    expires_at = {now} + w.ttl / 2, queued = l.queued - 1, instance = w.instance, since = {now}, update_time = {now}
  FROM {waiters} w
  WHERE l.name = $1 AND w.token = $2 AND w.state = 0 AND w.mode = 0 AND l.members = 0 AND (l.owner = '' OR l.expires_at <= {now})
    AND NOT EXISTS (SELECT 1 FROM {waiters} b WHERE b.name = $1 AND b.state = 0 AND b.ticket < w.ticket)
  RETURNING l.fence, l.queued),
d AS (DELETE FROM {waiters} x USING t WHERE x.token = $2 AND x.state = 0 RETURNING 1)
SELECT fence, queued, 1 / (SELECT COUNT(*) FROM d), EXISTS (SELECT 1 FROM {waiters} o WHERE o.name = $1 AND o.state = 0 AND o.token <> $2) FROM t`

const (
	// unused is a lock's row that may go (rule D7): nobody waits for the lock or shares it, it has no record of a Break to be kept, and its
	// latest time is older than both the one before the last turn and a reap age: the clock may be set during the turn.
	unused = `queued = 0 AND members = 0 AND (broken IS NULL OR update_time < {now} - {memory}) AND ` + latest + ` < {before} AND ` +
		latest + ` < {now} - {age}`
	// latest is when a lock's row was used, its owner's lease ends, or its fence begins to lie behind the clock, whichever is last.
	latest = `{greatest}(update_time, expires_at, fence / 1000)`

	unusedLocks = `SELECT name AS id FROM {locks}{by name} WHERE name IN ({list}) AND ` + unused

	// reapedRange tells of each row whether it may go, and whether it counts waiters that have gone long ago.
	reapedRange = `SELECT l.name, CASE WHEN ` + unused + ` THEN 1 ELSE 0 END, CASE WHEN l.queued + l.members = 0 THEN 0
  WHEN l.queued + l.members > (SELECT COUNT(*) FROM {waiters} w WHERE w.name = l.name AND w.expires_at >= {before}) THEN 1 ELSE 0 END
FROM {locks} l{by name} WHERE l.name > $1 ORDER BY l.name LIMIT {range}`

	// lastTurn is when a process went along the table last, and takeTurn has one process do so: 1 that time. Older versions had numbers there.
	lastTurn    = `SELECT value, {now} FROM {meta} WHERE name = 'reaper'`
	takeTurn    = `UPDATE {meta} SET value = {now}, expires_at = 0 WHERE name = 'reaper' AND value = $1`
	forgetNotes = `DELETE FROM {meta} WHERE expires_at > 0 AND expires_at < {before}`

	backlog = `SELECT COUNT(*), COALESCE(MIN(update_time), 0) FROM (SELECT update_time FROM {locks}
  WHERE queued = 0 AND members = 0 AND ` + latest + ` < {now} - $1 LIMIT 1000) late`
)

const (
	// inspect is one statement, so that the holders and the queue are those of one moment. 1 name  2 how many are named of each
	inspect = `SELECT l.owner, l.mode, l.ttl, l.fence, l.expires_at, l.instance, l.since, COALESCE(l.broken, ''), {now},
  COALESCE(w.ticket, 0), COALESCE(w.token, ''), COALESCE(w.mode, 0), COALESCE(w.state, 0), COALESCE(w.ttl, 0), COALESCE(w.fence, 0),
  COALESCE(w.expires_at, 0), COALESCE(w.instance, ''), COALESCE(w.since, 0), COALESCE(w.alike, 0)
FROM {locks} l LEFT JOIN (
  SELECT * FROM (SELECT w.*, COUNT(*) OVER () AS alike FROM {waiters} w
    WHERE w.name = $1 AND w.state = 1 AND w.expires_at > {now} ORDER BY w.ticket LIMIT $2) h
  UNION ALL
  SELECT * FROM (SELECT w.*, COUNT(*) OVER () AS alike FROM {waiters} w
    WHERE w.name = $1 AND w.state = 0 AND w.expires_at > {now} ORDER BY w.ticket LIMIT $2) q
) w ON w.name = l.name
WHERE l.name = $1 ORDER BY w.ticket`

	// list looks at a span of the index and returns the locks in use there, and its last row, at which the next span begins.
	// 1 after this name  2 from this on  3 before this  4 rows looked at  5 rows returned
	list = `WITH span AS (
  SELECT l.name, COALESCE(l.full_name, '') AS full_name, l.owner, l.mode, l.ttl, l.fence, l.expires_at, l.instance, l.since,
    COALESCE(l.broken, '') AS broken, {now} AS moment,
    CASE WHEN l.members > 0 THEN (SELECT COUNT(*) FROM {waiters} w WHERE w.name = l.name AND w.state = 1 AND w.expires_at > {now}) ELSE 0 END AS readers,
    CASE WHEN l.members > 0 THEN (SELECT MIN(w.ticket) FROM {waiters} w WHERE w.name = l.name AND w.state = 1 AND w.expires_at > {now}) END AS reader,
    CASE WHEN l.queued > 0 THEN (SELECT COUNT(*) FROM {waiters} w WHERE w.name = l.name AND w.state = 0 AND w.expires_at > {now}) ELSE 0 END AS waiting
  FROM {locks} l WHERE l.name > $1 AND l.name >= $2 AND l.name < $3 ORDER BY l.name LIMIT $4)
SELECT s.name, s.full_name, s.owner, s.mode, s.ttl, s.fence, s.expires_at, s.instance, s.since, s.broken, s.moment, s.readers, s.waiting,
  COALESCE(w.token, ''), COALESCE(w.ttl, 0), COALESCE(w.fence, 0), COALESCE(w.expires_at, 0), COALESCE(w.instance, ''), COALESCE(w.since, 0),
  (SELECT COUNT(*) FROM span), (SELECT MAX(name) FROM span)
FROM span s LEFT JOIN {waiters} w ON w.name = s.name AND w.ticket = s.reader
WHERE s.owner <> '' AND s.expires_at > s.moment OR s.readers > 0 OR s.waiting > 0 OR s.name = (SELECT MAX(name) FROM span)
ORDER BY s.name LIMIT $5`
)

const (
	// note keeps the record of a Break, and noted reads it.
	note  = `UPDATE {locks} SET broken = $2 WHERE name = $1`
	noted = `SELECT COALESCE(broken, '') FROM {locks} WHERE name = $1`

	// noteTTL notes one that is in use: 1 name  2 TTL  3 for how long. ttls are those of a system, whose names lie between two.
	noteTTL = `INSERT INTO {meta} (name, value, expires_at) VALUES ($1, $2, {now} + $3) {or update} expires_at = {now} + $3`
	ttls    = `SELECT value FROM {meta} WHERE name >= $1 AND name < $2 AND expires_at > {now}`

	// recordRun notes how a run has ended, unless that of a larger fence is there. MySQL carries out the assignments from left to right.
	// 1 name  2 fence  3 text  4 the fence, or -1 if the run has failed  5 the text, or ''
	recordRun = `INSERT INTO {runs}{as old} (name, fence, latest, succeeded, success, update_time) VALUES ($1, $2, $3, $4, $5, {now}) {or update}
latest = CASE WHEN {old}fence <= $2 THEN $3 ELSE {old}latest END, fence = CASE WHEN {old}fence <= $2 THEN $2 ELSE {old}fence END,
success = CASE WHEN {old}succeeded <= $4 THEN $5 ELSE {old}success END,
succeeded = CASE WHEN {old}succeeded <= $4 THEN $4 ELSE {old}succeeded END, update_time = {now}`

	// latestRuns are those of the names in a span that were recorded last, so many, and moreRuns those that were recorded before them.
	latestRuns    = `SELECT latest, success FROM {runs} WHERE name >= $1 AND name < $2 ORDER BY update_time DESC LIMIT $3`
	moreRuns      = `SELECT name FROM {runs} WHERE name >= $1 AND name < $2 ORDER BY update_time DESC LIMIT 1000 OFFSET $3`
	forgetRuns    = `DELETE FROM {runs} WHERE name IN ({list})`
	forgetOldRuns = `DELETE FROM {runs} WHERE update_time < {now} - $1`

	format       = `SELECT value FROM {meta} WHERE name = 'version'`
	removePlace  = `DELETE FROM {waiters} WHERE name = $1 AND ticket = $2`
	lightest     = `SELECT 1`
	notification = `SELECT pg_notify($1, $2)`
	rollback     = `ROLLBACK`
)
