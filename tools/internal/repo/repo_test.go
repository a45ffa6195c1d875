package repo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModulesOfThisRepository(t *testing.T) {
	all, err := Modules("../../..")
	require.NoError(t, err)
	at := map[string]int{}
	for i, m := range all {
		at[m.Dir] = i
	}
	require.Less(t, at["."], at["distributed/sqllock"], "the root is tagged first")
	require.Less(t, at["distributed/sqllock"], at["cmd/wllock"], "the command requires the backends")
	require.True(t, all[at["cmd/wllock"]].Released())
	require.False(t, all[at["example"]].Released())
	require.Equal(t, "v1.2.3", all[at["."]].Tag("v1.2.3"))
	require.Equal(t, "cmd/wllock/v1.2.3", all[at["cmd/wllock"]].Tag("v1.2.3"))
}

func TestOrderIsRefused(t *testing.T) {
	root, sql := Module{Dir: ".", Path: Path}, Module{Dir: "sql", Path: Path + "/sql", Requires: []string{Path}}
	shop := Module{Dir: "example", Path: Path + "/example", Requires: []string{Path}}
	sorted, err := inOrder([]Module{sql, shop, root})
	require.NoError(t, err)
	require.Equal(t, []Module{root, sql, shop}, sorted)

	sql.Requires = []string{shop.Path}
	_, err = inOrder([]Module{root, sql, shop})
	require.ErrorContains(t, err, "is released and requires")
	shop.Requires = []string{sql.Path}
	_, err = inOrder([]Module{root, sql, shop})
	require.ErrorContains(t, err, "2 require each other")
}

func TestOwn(t *testing.T) {
	require.True(t, Own(Path))
	require.True(t, Own(Path+"/test"))
	require.False(t, Own(Path+"er"))
}
