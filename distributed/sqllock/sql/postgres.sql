-- The tables of sqllock on PostgreSQL 13 or later. sqllock.Migrate runs these statements; so may your own migrations.
-- {locks}, {waiters}, {meta} and {runs} are wllock_locks, wllock_waiters, wllock_meta and wllock_runs, or as WithTable and WithSchema say.
--
-- Least privileges of the application: SELECT, INSERT, UPDATE, DELETE on the four tables, and USAGE on their schema. With a
-- Notifier nothing more: everybody may LISTEN and NOTIFY.
--
-- Times are microseconds since 1970 by the clock of the database.

-- A row is a lock. It stays when the lock is free, so that its fences go on; the reaper deletes it when it is unused for long.
-- The rows change all the time: room is left in every page, and no index is on what changes, so that an update stays on its page.
CREATE TABLE IF NOT EXISTS {locks} (
  name        text COLLATE "C" PRIMARY KEY,         -- the key, or the hash of a long one
  full_name   text,                                 -- a key that is hashed
  owner       text COLLATE "C" NOT NULL DEFAULT '', -- the holder's token; '': none
  prior       text COLLATE "C" NOT NULL DEFAULT '', -- who was the owner when this one took the lock
  mode        smallint NOT NULL DEFAULT 0,          -- of the owner: 0 exclusive, 1 shared
  ttl         bigint NOT NULL DEFAULT 0,            -- of the owner's lease
  fence       bigint NOT NULL,                      -- the last one that was reserved
  expires_at  bigint NOT NULL DEFAULT 0,            -- when the owner's lease does
  queued      integer NOT NULL DEFAULT 0,           -- rows of waiters that wait
  members     integer NOT NULL DEFAULT 0,           -- rows of waiters that hold the lock beside the owner, or after it
  ticket      bigint NOT NULL DEFAULT 0,            -- the last one that was drawn
  instance    text NOT NULL DEFAULT '',             -- of the owner
  since       bigint NOT NULL DEFAULT 0,            -- when it took the lock
  broken      text,                                 -- who has ended a lease by force, for people
  update_time bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Who waits for a lock, in the order of the tickets, and the readers that share it with the owner.
CREATE TABLE IF NOT EXISTS {waiters} (
  name       text COLLATE "C" NOT NULL,
  ticket     bigint NOT NULL,
  token      text COLLATE "C" NOT NULL UNIQUE,
  mode       smallint NOT NULL,
  state      smallint NOT NULL,                     -- 0 waits, 1 holds
  ttl        bigint NOT NULL,
  fence      bigint NOT NULL DEFAULT 0,             -- of one that holds: its first; of a permit that waits: its limit
  instance   text NOT NULL DEFAULT '',              -- of the attempt
  since      bigint NOT NULL DEFAULT 0,             -- when it began to wait, or to hold
  expires_at bigint NOT NULL,                       -- of the place, or of the lease
  PRIMARY KEY (name, ticket)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The version of these tables; when the reaper went along them last; the lease TTLs in use.
CREATE TABLE IF NOT EXISTS {meta} (
  name       text COLLATE "C" PRIMARY KEY,
  value      bigint NOT NULL,
  expires_at bigint NOT NULL DEFAULT 0
);

-- How the latest runs under locks ended, for "wllock jobs". Locks do without this table.
CREATE TABLE IF NOT EXISTS {runs} (
  name        text COLLATE "C" PRIMARY KEY,  -- as in {locks}
  fence       bigint NOT NULL,               -- of the latest run
  latest      text NOT NULL,                 -- it, as JSON
  succeeded   bigint NOT NULL,               -- the fence of the latest run that has succeeded; -1: none has
  success     text NOT NULL,                 -- it, as JSON; '': none
  update_time bigint NOT NULL
);

INSERT INTO {meta} (name, value) VALUES ('version', 1), ('reaper', 0) ON CONFLICT DO NOTHING;
