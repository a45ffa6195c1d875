-- The tables of sqllock on SQLite 3.35 or later. sqllock.Migrate runs these statements; so may your own migrations.
-- {locks}, {waiters}, {meta} and {runs} are wllock_locks, wllock_waiters, wllock_meta and wllock_runs, or as WithTable and WithSchema say.
--
-- Least privileges of the application: to read and write the file and its directory. The file is on a disk of this machine.
--
-- Times are microseconds since 1970 by the clock of the machine.

-- A row is a lock. It stays when the lock is free, so that its fences go on; the reaper deletes it when it is unused for long.
CREATE TABLE IF NOT EXISTS {locks} (
  name        TEXT NOT NULL PRIMARY KEY,             -- the key, or the hash of a long one
  full_name   TEXT,                                  -- a key that is hashed
  owner       TEXT NOT NULL DEFAULT '',              -- the holder's token; '': none
  prior       TEXT NOT NULL DEFAULT '',              -- who was the owner when this one took the lock
  mode        INTEGER NOT NULL DEFAULT 0,            -- of the owner: 0 exclusive, 1 shared
  ttl         INTEGER NOT NULL DEFAULT 0,            -- of the owner's lease
  fence       INTEGER NOT NULL,                      -- the last one that was reserved
  expires_at  INTEGER NOT NULL DEFAULT 0,            -- when the owner's lease does
  queued      INTEGER NOT NULL DEFAULT 0,            -- rows of waiters that wait
  members     INTEGER NOT NULL DEFAULT 0,            -- rows of waiters that hold the lock beside the owner, or after it
  ticket      INTEGER NOT NULL DEFAULT 0,            -- the last one that was drawn
  instance    TEXT NOT NULL DEFAULT '',              -- of the owner
  since       INTEGER NOT NULL DEFAULT 0,            -- when it took the lock
  broken      TEXT,                                  -- who has ended a lease by force, for people
  update_time INTEGER NOT NULL
) WITHOUT ROWID;

-- Who waits for a lock, in the order of the tickets, and the readers that share it with the owner.
CREATE TABLE IF NOT EXISTS {waiters} (
  name       TEXT NOT NULL,
  ticket     INTEGER NOT NULL,
  token      TEXT NOT NULL UNIQUE,
  mode       INTEGER NOT NULL,
  state      INTEGER NOT NULL,                       -- 0 waits, 1 holds
  ttl        INTEGER NOT NULL,
  fence      INTEGER NOT NULL DEFAULT 0,             -- of one that holds: its first; of a permit that waits: its limit
  instance   TEXT NOT NULL DEFAULT '',               -- of the attempt
  since      INTEGER NOT NULL DEFAULT 0,             -- when it began to wait, or to hold
  expires_at INTEGER NOT NULL,                       -- of the place, or of the lease
  PRIMARY KEY (name, ticket)
) WITHOUT ROWID;

-- The version of these tables; when the reaper went along them last; the lease TTLs in use.
CREATE TABLE IF NOT EXISTS {meta} (
  name       TEXT NOT NULL PRIMARY KEY,
  value      INTEGER NOT NULL,
  expires_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- How the latest runs under locks ended, for "wllock jobs". Locks do without this table.
CREATE TABLE IF NOT EXISTS {runs} (
  name        TEXT NOT NULL PRIMARY KEY,  -- as in {locks}
  fence       INTEGER NOT NULL,           -- of the latest run
  latest      TEXT NOT NULL,              -- it, as JSON
  succeeded   INTEGER NOT NULL,           -- the fence of the latest run that has succeeded; -1: none has
  success     TEXT NOT NULL,              -- it, as JSON; '': none
  update_time INTEGER NOT NULL
) WITHOUT ROWID;

INSERT OR IGNORE INTO {meta} (name, value) VALUES ('version', 1), ('reaper', 0);
