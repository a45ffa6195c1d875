-- The tables of sqllock on MySQL 8 and MariaDB 10.6, or later. sqllock.Migrate runs these statements; so may your own migrations.
-- {locks}, {waiters}, {meta} and {runs} are wllock_locks, wllock_waiters, wllock_meta and wllock_runs, or as WithTable and WithSchema say.
--
-- Least privileges of the application: SELECT, INSERT, UPDATE, DELETE on the four tables.
--
-- Times are microseconds since 1970 by the clock of the database, in UTC. Names are bytes, because collations of text take some
-- different names for equal; to read them: CONVERT(name USING utf8mb4).

-- A row is a lock. It stays when the lock is free, so that its fences go on; the reaper deletes it when it is unused for long.
CREATE TABLE IF NOT EXISTS {locks} (
  name        VARBINARY(190) NOT NULL PRIMARY KEY,   -- the key, or the hash of a long one
  full_name   VARBINARY(700),                        -- a key that is hashed
  owner       VARBINARY(48) NOT NULL DEFAULT '',     -- the holder's token; '': none
  prior       VARBINARY(48) NOT NULL DEFAULT '',     -- who was the owner when this one took the lock
  mode        TINYINT NOT NULL DEFAULT 0,            -- of the owner: 0 exclusive, 1 shared
  ttl         BIGINT NOT NULL DEFAULT 0,             -- of the owner's lease
  fence       BIGINT NOT NULL,                       -- the last one that was reserved
  expires_at  BIGINT NOT NULL DEFAULT 0,             -- when the owner's lease does
  queued      INT NOT NULL DEFAULT 0,                -- rows of waiters that wait
  members     INT NOT NULL DEFAULT 0,                -- rows of waiters that hold the lock beside the owner, or after it
  ticket      BIGINT NOT NULL DEFAULT 0,             -- the last one that was drawn
  instance    VARBINARY(100) NOT NULL DEFAULT '',    -- of the owner
  since       BIGINT NOT NULL DEFAULT 0,             -- when it took the lock
  broken      VARBINARY(1000),                       -- who has ended a lease by force, for people
  update_time BIGINT NOT NULL
) ENGINE = InnoDB;

-- Who waits for a lock, in the order of the tickets, and the readers that share it with the owner.
CREATE TABLE IF NOT EXISTS {waiters} (
  name       VARBINARY(190) NOT NULL,
  ticket     BIGINT NOT NULL,
  token      VARBINARY(48) NOT NULL,
  mode       TINYINT NOT NULL,
  state      TINYINT NOT NULL,                       -- 0 waits, 1 holds
  ttl        BIGINT NOT NULL,
  fence      BIGINT NOT NULL DEFAULT 0,              -- of one that holds: its first; of a permit that waits: its limit
  instance   VARBINARY(100) NOT NULL DEFAULT '',     -- of the attempt
  since      BIGINT NOT NULL DEFAULT 0,              -- when it began to wait, or to hold
  expires_at BIGINT NOT NULL,                        -- of the place, or of the lease
  PRIMARY KEY (name, ticket),
  UNIQUE KEY (token)
) ENGINE = InnoDB;

-- The version of these tables; when the reaper went along them last; the lease TTLs in use.
CREATE TABLE IF NOT EXISTS {meta} (
  name       VARBINARY(190) NOT NULL PRIMARY KEY,
  value      BIGINT NOT NULL,
  expires_at BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- How the latest runs under locks ended, for "wllock jobs". Locks do without this table.
CREATE TABLE IF NOT EXISTS {runs} (
  name        VARBINARY(190) NOT NULL PRIMARY KEY,  -- as in {locks}
  fence       BIGINT NOT NULL,                      -- of the latest run
  latest      BLOB NOT NULL,                        -- it, as JSON
  succeeded   BIGINT NOT NULL,                      -- the fence of the latest run that has succeeded; -1: none has
  success     BLOB NOT NULL,                        -- it, as JSON; '': none
  update_time BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO {meta} (name, value) VALUES ('version', 1), ('reaper', 0);
