package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"strings"

	"github.com/wllock/wllock/internal/keyless"
)

//go:embed sql/*.sql
var ddl embed.FS

// Format is the version of the tables, which the table of meta has. The first request, too, refuses tables of another version.
const Format = 1

// Migrate creates the tables that are missing. Of the options of New it uses those that say where the tables are. It can be run again, and by
// several processes at a time. The user needs the right to create tables. Alternatively, an application can run the statements of DDL with its
// own migrations.
func Migrate(ctx context.Context, db *sql.DB, dialect Dialect, opts ...Option) error {
	set, err := newSettings(dialect, opts)
	if err != nil {
		return err
	}
	statements, err := DDL(dialect, opts...)
	if err != nil {
		return err
	}
	if err := retrying(ctx, func() error { _, err := sessionOf(ctx, db, dialect, &set); return err }); err != nil {
		return explain("migrate", err)
	}
	for _, one := range statements {
		err := retrying(ctx, func() error { return create(ctx, db, one) })
		if err != nil {
			return explain("migrate", err)
		}
	}
	if err := retrying(ctx, func() error { return checkFormat(ctx, db, newStatements(dialect, &set)) }); err != nil {
		return explain("migrate", err)
	}
	return nil
}

// checkFormat returns an error if the tables were made by a version with another format.
func checkFormat(ctx context.Context, q querier, st *statements) error {
	var found int
	err := one(ctx, q, st.text(format), nil, &found)
	if err == nil && found != Format {
		err = keyless.Errorf("%w: another version of wllock has made the tables, in format %d, and this process knows format %d: "+
			"all that share locks need versions of one format", errSession, found, Format)
	}
	if errors.Is(err, sql.ErrNoRows) { // somebody has deleted it
		err = nil
	}
	return err
}

// DDL returns the statements that Migrate runs.
func DDL(dialect Dialect, opts ...Option) ([]string, error) {
	s, err := newSettings(dialect, opts)
	if err != nil {
		return nil, err
	}
	text, err := ddl.ReadFile("sql/" + dialect.String() + ".sql")
	if err != nil {
		return nil, err
	}
	var statements []string
	for one := range strings.SplitSeq(withoutComments(s.fill(string(text))), ";") {
		if one = strings.TrimSpace(one); one != "" {
			statements = append(statements, one)
		}
	}
	return statements, nil
}

// withoutComments removes what follows two dashes: the only comments in the files.
func withoutComments(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "--")
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// fill puts the names of the tables into a statement.
func (s *settings) fill(text string) string { return strings.NewReplacer(s.names()...).Replace(text) }

func (s *settings) names() []string {
	return []string{"{locks}", s.table("locks"), "{waiters}", s.table("waiters"), "{meta}", s.table("meta"), "{runs}", s.table("runs"), "{schema}", s.schema, "{prefix}", s.prefix}
}

// createTries is how often a statement is sent that others carry out at the same time. The second time they have committed.
const createTries = 3

// createdMeanwhile are PostgreSQL's answers to the slower of two that create a table if it does not exist.
var createdMeanwhile = map[string]bool{"23505": true, "42P07": true, "42710": true} // unique violation; duplicate table, object

func create(ctx context.Context, db *sql.DB, text string) (err error) {
	for range createTries {
		if _, err = db.ExecContext(ctx, text); err == nil || !createdMeanwhile[code(err)] {
			return err
		}
	}
	return err
}
