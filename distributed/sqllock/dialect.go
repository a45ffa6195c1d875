package sqllock

import (
	"strconv"
	"strings"
)

// Dialect says which database it is.
type Dialect uint8

// The dialects. MySQL is MariaDB's, too.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
	SQLite
)

// String returns "postgres", "mysql" or "sqlite".
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "postgres"
	case MySQL:
		return "mysql"
	case SQLite:
		return "sqlite"
	}
	return "Dialect(" + strconv.Itoa(int(d)) + ")"
}

func (d Dialect) known() bool { return d >= PostgreSQL && d <= SQLite }

// query is a statement whose arguments are written $1, $2, ... Databases that number them otherwise get them in the order in
// which they stand in the text.
type query struct {
	text  string
	order []int // the argument of each mark; nil: PostgreSQL takes them as they are
}

func (q query) args(args ...any) []any {
	if q.order == nil {
		return args
	}
	ordered := make([]any, len(q.order))
	for i, n := range q.order {
		ordered[i] = args[n-1]
	}
	return ordered
}

// compile makes a query of a template.
func (d Dialect) compile(template string) query {
	if d == PostgreSQL {
		return query{text: template}
	}
	q := query{order: []int{}}
	var text strings.Builder
	for {
		before, after, found := strings.Cut(template, "$")
		text.WriteString(before)
		if !found {
			break
		}
		end := 0
		for end < len(after) && after[end] >= '0' && after[end] <= '9' {
			end++
		}
		n, _ := strconv.Atoi(after[:end])
		q.order = append(q.order, n)
		text.WriteByte('?')
		template = after[end:]
	}
	q.text = text.String()
	return q
}

// marks writes n arguments as a list, beginning with number first.
func (d Dialect) marks(first, n int) string {
	if d != PostgreSQL {
		return strings.Repeat("?,", n-1) + "?"
	}
	var list strings.Builder
	for i := range n {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteByte('$')
		list.WriteString(strconv.Itoa(first + i))
	}
	return list.String()
}

// statements are the statements of a Backend, in its dialect and with the names of its tables.
type statements struct {
	set     *settings
	d       Dialect
	now     string                       // microseconds since 1970
	text    func(template string) string // puts in the words of the dialect, and the names
	acquire query                        // for a new key
	again   query                        // for one whose row is there
	release query
	load    query
	entries query
	store   query
	add     query
	alter   query
	peek    query

	queueUp, queueUpLoudly, takeFirst query // of PostgreSQL

	// With lists for an argument: see list.
	drop, renew, renewMembers, renewFree, renewFreeSeats, beat, places, leases, seats, owners string
}

// The arguments of acquire, in this order.
//
//	1 name  2 full name  3 token  4 prev's token  5 mode  6 TTL  7 window  8 fences  9 prev's last fence  10 the last one it has drawn
//	11 instance
func newStatements(d Dialect, s *settings) *statements {
	st := &statements{set: s, d: d}
	words := map[Dialect][]string{
		PostgreSQL: {"{now}", postgresNow, "{bound}", postgresBound, "{greatest}", "GREATEST", "{lock}", " FOR UPDATE", "{all}", "", "{by name}", "", "{by token}", ""},
		MySQL: {"{now}", mysqlNow, "{bound}", "", "{greatest}", "GREATEST",
			// Other code of the application may set sql_select_limit in a session of the pool. It does not hold where there is another limit:
			// else what is cut off would count as gone.
			"{lock}", " LIMIT 1 FOR UPDATE", "{all}", " LIMIT 18446744073709551615",
			// A scan of a small table would lock other locks' rows.
			"{by name}", " FORCE INDEX (PRIMARY)", "{by token}", " FORCE INDEX (token)"},
		SQLite: {"{now}", sqliteNow, "{bound}", "", "{greatest}", "MAX", "{lock}", "", "{all}", "", "{by name}", "", "{by token}", ""},
	}[d]
	st.now = words[1]
	st.text = func(template string) string { return strings.NewReplacer(words...).Replace(s.fill(template)) }
	acquire, taken := upsert, again
	if d == MySQL {
		acquire, taken = mysqlUpsert, mysqlAgain
	}
	for q, template := range map[*query]string{
		&st.acquire: acquire, &st.again: taken, &st.release: release, &st.load: load, &st.entries: entries, &st.store: store, &st.add: add,
		&st.alter: alter, &st.peek: peek, &st.takeFirst: takeFirst, &st.queueUp: queueUpSilently,
		&st.queueUpLoudly: queueUpLoudly,
	} {
		*q = d.compile(st.text(template))
	}
	for q, template := range map[*string]string{
		&st.drop: drop, &st.renew: renew, &st.renewMembers: renewMembers, &st.beat: beat, &st.places: places, &st.leases: leases,
		&st.seats: seats, &st.owners: owners, &st.renewFree: d.ofUnlocked(owned, "{locks}", "name", renewed, "owner, queued, expires_at"),
		&st.renewFreeSeats: d.ofUnlocked(seated, "{waiters}", "token", renewedSeat, "token, "+seatQueued+", expires_at"),
	} {
		*q = st.text(template)
	}
	return st
}

// The databases' clocks in microseconds. All are read when the statement runs; one that has waited for a row's lock may have read
// it before. Then it takes less for expired than there is, and what it writes expires sooner, which does no harm (rule D2).
const (
	// postgresNow takes a double, exact to a microsecond; EXTRACT has numerics, which cost a lone caller a tenth of its time.
	postgresNow = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint"
	// postgresBound has the server end this transaction, and give the row to others, when its process stands still in it for a sixth of
	// the owner's TTL, so that the owner can still renew. It adds nothing, so that it costs no round trip.
	postgresBound = " + 0 * length(set_config('idle_in_transaction_session_timeout', GREATEST(250, LEAST(1000, ttl / 6000))::text, true))"
	// mysqlNow does not pass through a time zone: UNIX_TIMESTAMP() would, and be wrong for an hour in autumn.
	mysqlNow = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
	// sqliteNow counts milliseconds, which is what SQLite has.
	sqliteNow = "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"
)

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

// ofUnlocked changes those of some rows that nobody else has locked (rule D10). It is one statement: nothing stays locked between two.
// MySQL merges no derived table that has a LIMIT, and returns nothing.
func (d Dialect) ofUnlocked(rows, table, id, set, returning string) string {
	switch d {
	case MySQL:
		return "UPDATE " + mysqlUnlocked(rows, table, id) + " SET " + set
	case SQLite: // locks no rows
		return "UPDATE " + table + " SET " + set + " WHERE " + id + " IN (" + rows + ")"
	}
	return "WITH u AS MATERIALIZED (" + rows + " FOR UPDATE SKIP LOCKED) UPDATE " + table + " l SET " + set + " FROM u WHERE l." + id +
		" = u.id RETURNING " + returning
}

// deleteUnlocked deletes them.
func (d Dialect) deleteUnlocked(rows, table, id string) string {
	switch d {
	case MySQL:
		return "DELETE l FROM " + mysqlUnlocked(rows, table, id)
	case SQLite:
		return "DELETE FROM " + table + " WHERE " + id + " IN (" + rows + ")"
	}
	return "WITH u AS MATERIALIZED (" + rows + " FOR UPDATE SKIP LOCKED) DELETE FROM " + table + " l USING u WHERE l." + id + " = u.id"
}

func mysqlUnlocked(rows, table, id string) string {
	index := map[string]string{"name": "PRIMARY", "token": "token"}[id]
	return "(" + rows + " LIMIT 4096 FOR UPDATE SKIP LOCKED) u STRAIGHT_JOIN " + table + " l FORCE INDEX (" + index + ") ON l." + id + " = u.id"
}

// list fills the lists into a statement. Their lengths are rounded up to powers of two by repeating the last one, so that
// there are few different statements for the server, and the driver, to prepare.
func (st *statements) list(text string, lists ...[]string) (string, []any) {
	var args []any
	for _, l := range lists {
		n := 1
		for n < len(l) {
			n *= 2
		}
		text = strings.Replace(text, "{list}", st.d.marks(len(args)+1, n), 1)
		for i := range n {
			args = append(args, l[min(i, len(l)-1)])
		}
	}
	return text, args
}

func (d Dialect) hasReturning() bool { return d != MySQL }
