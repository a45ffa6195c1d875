package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChangelogHasTheVersion(t *testing.T) {
	const head = "# Changelog\n\n## [Unreleased]\n"
	require.NoError(t, inChangelog(head+"\n## [0.1.0] - 2026-11-22\n\n### Added\n- all\n", "v0.1.0"))
	require.NoError(t, inChangelog("## [0.2.0] - 2026-12-01\n- more\n## [0.1.0] - 2026-11-22\n- all\n", "v0.2.0"))
	require.ErrorContains(t, inChangelog(head+"- all\n", "v0.1.0"), `## [0.1.0] - YYYY-MM-DD`)
	require.ErrorContains(t, inChangelog(head+"## [0.1.0] - soon\n", "v0.1.0"), "first section")
	require.ErrorContains(t, inChangelog(head+"## [0.1.0] - 2026-11-22\n", "v0.2.0"), "first section")
	require.ErrorContains(t, inChangelog(head+"- forgotten\n\n## [0.1.0] - 2026-11-22\n", "v0.1.0"), "Unreleased is not empty")
}

// repository makes one with a tag and a changelog.
func repository(t *testing.T, changelog string) string {
	t.Helper()
	top := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(top, "CHANGELOG.md"), []byte(changelog), 0o644))
	git := []string{"-c", "user.name=n", "-c", "user.email=e", "-c", "tag.gpgSign=false", "-c", "commit.gpgSign=false"}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "--message", "all"}, {"tag", "v0.9.0"}, {"tag", "v0.10.0"}} {
		_, err := output(top, nil, "git", append(git, args...)...)
		require.NoError(t, err)
	}
	return top
}

func TestWrongReleasesAreRefused(t *testing.T) {
	top := repository(t, "## [0.11.0] - 2026-11-22\n- all\n")
	check := func(version string) error { return (&release{top: top, version: version}).check() }
	require.NoError(t, check("v0.11.0"))
	require.ErrorContains(t, check("v0.10.0"), "v0.10.0 is not above v0.10.0")
	require.ErrorContains(t, check("v0.9.1"), "is not above v0.10.0")
	for _, version := range []string{"", "0.11.0", "v0.11", "v0.11.0+x", "latest"} {
		require.ErrorContains(t, check(version), "want vMAJOR.MINOR.PATCH", version)
	}
	require.NoError(t, os.WriteFile(filepath.Join(top, "new.go"), nil, 0o644))
	require.ErrorContains(t, check("v0.11.0"), "new.go")
	require.NoError(t, (&release{top: top, version: "v0.11.0", draft: true}).check())
}
