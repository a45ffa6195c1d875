package wllocktest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/wllocktest"
)

// broken is a test that notes what ended it.
type broken struct {
	testing.TB
	why string
}

func (b *broken) Fatal(args ...any) { b.Fatalf("%s", fmt.Sprint(args...)) }

func (b *broken) Fatalf(format string, args ...any) {
	b.why = fmt.Sprintf(format, args...)
	panic(b)
}

// away is a database that cannot be reached.
type away struct{}

func (away) Open(string) (driver.Conn, error) { return nil, errors.New("away") }

func TestOverlapCannotBeUsed(t *testing.T) {
	db, err := wllocktest.OpenDB(away{}, "")
	require.NoError(t, err)
	unseen := sql.OpenDB(other{})
	defer func() { require.NoError(t, errors.Join(db.Close(), unseen.Close())) }()
	nothing := func(context.Context) error { return nil }
	reset := wllocktest.OverlapBefore(func(ctx context.Context) error { return db.PingContext(ctx) })
	for says, overlap := range map[string]func(t testing.TB){
		"needs a database of OpenDB": func(t testing.TB) { wllocktest.Overlap(t, unseen, nothing, nothing) },
		"has seen no statement":      func(t testing.TB) { wllocktest.Overlap(t, db, nothing, nothing) },
		"Overlap: away":              func(t testing.TB) { wllocktest.Overlap(t, db, nothing, nothing, reset) },
	} {
		b := &broken{TB: t}
		require.PanicsWithValue(t, b, func() { overlap(b) })
		require.Contains(t, b.why, says)
	}
}

// other is a database that Overlap does not see.
type other struct{}

func (other) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("away") }
func (other) Driver() driver.Driver                        { return away{} }
